"""What the page says: key figures, sections of figures, how the run was made, what was left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.evaluation.ablation_table import AblationTable
from agent.store.manifest import flatten
from agent.views.ablation import blocks as ablation_blocks
from agent.views.charts import Block, block, table
from agent.views.figures.base import Figure, duration, money, share
from agent.views.figures.confidence import Confidence
from agent.views.figures.labels import Deciders, Errors, Funnel
from agent.views.figures.repairs import Repairs, StandIns
from agent.views.figures.rounds import Rounds
from agent.views.figures.running import Executed, Mutants, Outcomes
from agent.views.figures.spending import Cost, Time
from agent.wording import counted

# Of the machine and its user, not of the run: a report is published.
_PRIVATE = ("argv", "cwd", "host", "pid")


@dataclass
class Figures:
    """The figures of one run. `of_pairs` look at each pair `as_one`, `of_annotations` at each of its rounds."""

    funnel: Funnel
    deciders: Deciders = field(default_factory=Deciders)
    errors: Errors = field(default_factory=Errors)
    outcomes: Outcomes = field(default_factory=Outcomes)
    executed: Executed = field(default_factory=Executed)
    mutants: Mutants = field(default_factory=Mutants)
    repairs: Repairs = field(default_factory=Repairs)
    stand_ins: StandIns = field(default_factory=StandIns)
    cost: Cost = field(default_factory=Cost)
    time: Time = field(default_factory=Time)
    confidence: Confidence = field(default_factory=Confidence)
    rounds: Rounds = field(default_factory=Rounds)

    @property
    def of_pairs(self) -> list[Figure]:
        """Return those that count labels, and what these rest on."""
        return [self.funnel, self.deciders, self.outcomes, self.confidence]

    @property
    def of_annotations(self) -> list[Figure]:
        """Return those that count what was done."""
        pairs = self.of_pairs
        return [figure for figure in vars(self).values() if figure not in pairs]

    def sections(
        self, manifest: Mapping[str, Any], ablation: AblationTable | None, against_gold: Sequence[Block]
    ) -> list[dict[str, Any]]:
        """Return the page's sections; those without a figure are left out."""
        variant = manifest["identity"].get("variant")
        shown = variant.get("name") if isinstance(variant, Mapping) else None
        parts: dict[str, tuple[str, list[Block]]] = {
            "labels": ("Labels", _blocks(self.funnel, self.deciders, self.rounds, self.errors)),
            "gold": ("Against people's labels", list(against_gold)),
            "ablation": ("Ablation", [] if ablation is None else ablation_blocks(ablation, shown)),
            "tests": ("Tests", _blocks(self.executed, self.outcomes, self.mutants)),
            "repairs": ("Repairs and stand-ins", _blocks(self.repairs, self.stand_ins)),
            "confidence": ("Confidence", _blocks(self.confidence)),
            "spending": ("Cost and time", _blocks(self.cost, self.time)),
            "run": ("How the run was made", _made(manifest)),
        }
        return [{"id": name, "title": title, "blocks": inside} for name, (title, inside) in parts.items() if inside]

    def cards(self, rounds: int) -> list[dict[str, str]]:
        """Return the key figures: name, value, and a word on it."""
        labels = self.funnel.labels
        usage = self.cost.usage
        of_pairs, of_all = (" by majority", ", all rounds") if rounds > 1 else ("", "")
        cards = [
            (name, f"{labels[label]:,}", share(labels[label], labels.total()) + of_pairs)
            for name, label in (("match", "1"), ("no match", "0"), ("undecided", "undecided"), ("errors", "error"))
        ]
        if self.executed.programs:
            ran = f"{self.executed.executed:,} of {self.executed.programs:,}{of_all}"
            cards.append(("programs that ran", share(self.executed.executed, self.executed.programs), ran))
        cards += [
            ("cost", money(usage.cost_usd), counted(usage.calls, "call") + of_all),
            ("tokens", f"{usage.input_tokens + usage.output_tokens:,}", f"{usage.output_tokens:,} of them out"),
            ("time", duration(self.time.seconds), "of all rounds, added up" if of_all else "of all pairs, added up"),
        ]
        return [{"name": name, "value": value, "note": note} for name, value, note in cards]


def _blocks(*figures: Figure) -> list[Block]:
    return [each for figure in figures for each in figure.blocks()]


def _made(manifest: Mapping[str, Any]) -> list[Block]:
    identity = flatten(manifest["identity"])
    settings = [[name, _shown(value)] for name, value in identity.items() if not name.startswith("variant.nodes.")]
    blocks = [
        block("Settings", "What decides the labels.", None, [table({"setting": False, "value": False}, settings)])
    ]
    for number, segment in enumerate(manifest["segments"], 1):
        rows = [
            [name, _shown(value)]
            for name, value in flatten(segment.get("environment", {})).items()
            if name.split(".")[0] not in _PRIVATE
        ]
        rows += [
            [f"served model of {each.get('role') or 'all roles'}", _shown(each.get("model"))]
            for each in segment.get("served", ())
        ]
        title = "Environment" if len(manifest["segments"]) == 1 else f"Environment of start {number}"
        times = f"From {segment.get('started')} to {segment.get('ended') or 'an unknown time (it was killed)'}."
        blocks.append(block(title, times, None, [table({"what": False, "value": False}, rows)]))
    changes = [
        [str(each.get("at")), str(each.get("what")), _shown(each.get("before")), _shown(each.get("now"))]
        for each in manifest["changes"]
    ]
    if changes:
        columns = dict.fromkeys(("at", "what", "before", "now"), False)
        blocks.append(block("What changed while it went on", "", None, [table(columns, changes)]))
    return blocks


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else "–" if value is None else str(value)
