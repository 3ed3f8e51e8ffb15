"""NumPy, imported on first use, because it is optional and slow to import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.errors import needs_extra

__all__ = ["np"]

if TYPE_CHECKING:
    import numpy as np
else:

    class _LazyNumPy:
        def __getattr__(self, name: str) -> Any:
            with needs_extra("stats"):
                import numpy
            value = getattr(numpy, name)
            setattr(self, name, value)
            return value

    np = _LazyNumPy()
