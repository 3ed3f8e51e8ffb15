"""A program may put nothing in the place of the candidate's parts; what it does with its own is free."""

from __future__ import annotations

import ast
import keyword

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agent.languages.base import MalformedProgram
from tests.languages.python.parts import CLASS, FUNCTION, LANGUAGE, METHOD, STAND_IN, places, program

OF_FUNCTIONS = (
    "f.__code__ = (lambda x: x + 1).__code__",
    "f.__defaults__ = (1,)",
    "f.__kwdefaults__ = {}",
    "del f.__defaults__",
    "f.__closure__[0].cell_contents = 1",
    "g = f; g.__code__ = None",
    "own.f.__code__ = None",
    "setattr(f, '__code__', None)",
    "delattr(f, '__defaults__')",
    "object.__setattr__(f, '__code__', None)",
    "f.__setattr__('__code__', None)",
    "monkeypatch.setattr(f, '__code__', None)",
    "monkeypatch.setattr('test_program.f.__code__', None)",
    "monkeypatch.delattr(f, '__defaults__')",
    "mock.patch.object(f, '__code__', None).start()",
    "mock.patch.multiple(f, __code__=None).start()",
    "with mock.patch('__main__.f.__code__', None): pass",
    "put = setattr; put(f, '__code__', None)",
)
OF_CLASSES = (
    "C.m = lambda self: 2",
    "C.m, other = max, 1",
    "C.m: object = max",
    "C.limit += 1",
    "for C.m in [max]: pass",
    "with open('x') as C.m: pass",
    "del C.m",
    "C.plain = max",
    "C.size = 3",
    "C.other = max",
    "C.near = max",
    "C.limit = 4",
    "C.limit, other = 4, 3",
    "C.limit, *others = 3, 1",
    "C.seen = {1}",
    "C.seen = set('a')",
    "C.seen = made()",
    "set = made; C.seen = set()",
    "from os import getcwd as defaultdict; C.groups = defaultdict(list)",
    "saved = 1; saved = C.seen; C.seen = saved",
    "saved = C.names; C.seen = saved",
    "saved = C.seen; saved |= {1}; C.seen = saved",
    "saved = C.seen; C.seen, saved = saved, 1",
    "C.twice = 1",
    "C.grown = []",
    "saved = C.m; C.m = saved",
    "self.saved = C.seen; self.saved = 1; C.seen = self.saved",
    "C.Inner = dict",
    "C.Inner.deep = max",
    "C().Inner.deep = max",
    "C.Inner().deep = max",
    "C._C__helper = max",
    "C._C__hidden = 3",
    "_Derived._Derived__own = max",
    "_Derived._C__helper = max",
    "_Derived._Derived__Deep._Deep__helper = max",
    "__.__same = max",
    "mock.patch.object(C, '_C__helper', return_value=2).start()",
    "mock.patch('__main__.C._C__helper').start()",
    "C.__init__ = max",
    "C.__eq__ = lambda self, other: True",
    "C.__getattribute__ = max",
    "C.__bases__ = (dict,)",
    "C.__class__ = type",
    "C.m.__code__ = max.__code__",
    "setattr(C, 'm', max)",
    "delattr(C, 'm')",
    "type.__setattr__(C, 'm', max)",
    "type.__delattr__(C, 'm')",
    "C.__setattr__('m', max)",
    "vars(C)['m'] = max",
    "C.__dict__['m'] = max",
    "del C.__dict__['m']",
    "C.__dict__.update(m=max)",
    "D = C; D.m = max",
    "(D := C).m = max",
    "Taken.m = max",
    "own.C.m = max",
    "sys.modules[__name__].C.m = max",
    "globals()['C'].m = max",
    "getattr(own, 'C').m = max",
    "type(C()).m = max",
    "C().__class__.m = max",
    "c = C(); type(c).m = max",
    "c = C(); c.__class__.m = max",
    "D = C; c = D(); E = type(c); E.m = max",
    "mock.patch.object(C, 'm').start()",
    "mock.patch.object(target=C, attribute='m').start()",
    "mocker.patch.object(C, 'm', return_value=2)",
    "with mock.patch.object(C, 'm', lambda self: 2): pass",
    "swap.object(C, 'm').start()",
    "monkeypatch.setattr(C, 'm', max)",
    "monkeypatch.delattr(C, 'm')",
    "mock.patch.multiple(C, m=max).start()",
    "mock.patch.multiple(C, **{'m': max}).start()",
    "mock.patch.multiple('__main__.C', m=max).start()",
    "mock.patch('__main__.C.m').start()",
    "mock.patch('test_program.C.m').start()",
    "swap('__main__.C.m').start()",
    "mock.patch('__main__.C.Inner.deep').start()",
    "mock.patch(f'{__name__}.C.m').start()",
    "mock.patch(__name__ + '.C.m').start()",
    "mock.patch(f'{C.__module__}.{C.__qualname__}.m').start()",
    "monkeypatch.setattr('__main__.C.m', max)",
    "mock.patch('{}.C.m'.format(__name__)).start()",
    "mock.patch('{0}.{1}.m'.format(__name__, C.__name__)).start()",
    "mock.patch('%s.C.m' % __name__).start()",
    "mock.patch('%s.%s.m' % (C.__module__, C.__qualname__)).start()",
    "where = '__main__.C.m'; mock.patch(where).start()",
    "where = '__main__.C'; mock.patch(where + '.m').start()",
    "where = '__main__.C'; mock.patch.multiple(where, m=max).start()",
    "where: str = 'test_program.C.m'; monkeypatch.setattr(f'{where}', max)",
)
OF_OBJECTS = (
    "C().m = max",
    "c = C(); c.m = max",
    "c = C(); c.Inner.deep = max",
    "c: C = C(); c.plain = max",
    "c = C(); c.__class__ = dict",
    "c = C(); c._C__helper = max",
    "c = _Derived(); c._C__helper = max",
    "c = Called(); c._Called__done = max",
    "Called.on_end = max",
    "c = C(); dict.update(vars(c), m=max)",
    "c = C(); dict.update(vars(c), {'m': max})",
    "c = C(); type({}).update(c.__dict__, m=max)",
    "c = C(); dict.setdefault(c.__dict__, 'm', max)",
    "c = C(); vars(c).update(vars(c), m=max)",
    "c = _Derived(); mock.patch.object(c, '_Derived__own').start()",
    "c = C(); setattr(c, 'm', max)",
    "c = C(); object.__setattr__(c, 'm', max)",
    "c = C(); c.__setattr__('m', max)",
    "c = C(); vars(c)['m'] = max",
    "c = C(); c.__dict__.update({'m': max})",
    "c = C(); mock.patch.dict(c.__dict__, m=max).start()",
    "c = C(); monkeypatch.setitem(vars(c), 'm', max)",
    "c = C(); mock.patch.object(c, 'm').start()",
    "self.c = C(); self.c.m = max",
    "self.c = None; self.c = C(); self.c.m = max; del self.c",
    "c = None; c = C(); c.m = max; del c",
    "c: object; c = C(); c.m = max",
    "c = C() if C else None; c.m = max",
    "c = None or C(); c.m = max",
    "(C() if C else C()).m = max",
    "c, want = C(), 7; c.m = max",
)
OF_ENTERED = ("with Entered() as c: c.m = max", "with Kept() as c, Lent() as d: c.m = max")
DECORATED = ("@patch.object(C, 'm')", "@patch.multiple(C, m=max)", "@mock.patch('test_program.C.m')")


@pytest.mark.parametrize(
    ("code", "line"),
    [
        *((FUNCTION, line) for line in OF_FUNCTIONS),
        *((CLASS, line) for line in (*OF_CLASSES, *OF_OBJECTS, *OF_ENTERED)),
    ],
)
def test_nothing_may_be_put_in_the_place_of_a_part(code: str, line: str) -> None:
    before = program(code)
    for place in places(line):
        with pytest.raises(MalformedProgram, match="must be tested as it is"):
            program(code, template=f"# <candidate>\n\n{place}")
    with pytest.raises(MalformedProgram, match="must be tested as it is"):
        LANGUAGE.check_correction(before, program(code, line))


@pytest.mark.parametrize("decorator", DECORATED)
def test_a_decorator_may_not_either(decorator: str) -> None:
    for code, template in ((CLASS, "# <candidate>\n"), (METHOD, STAND_IN)):
        with pytest.raises(MalformedProgram, match=r"`C\.m`, which the candidate defines"):
            program(code, template=f"{template}\n{decorator}\ndef given(*parts):\n    pass\n")


@pytest.mark.parametrize(
    "line", [line for line in (*OF_CLASSES, *OF_OBJECTS) if ".m" in line or "'m'" in line or "m=" in line]
)
def test_a_method_is_kept_in_the_class_that_it_stands_in(line: str) -> None:
    program(METHOD, template=STAND_IN)
    with pytest.raises(MalformedProgram, match="must be tested as it is"):
        program(METHOD, line, STAND_IN)


def test_a_stand_in_that_enters_itself_is_known_under_with() -> None:
    around = STAND_IN.replace("    def fake", "    def __enter__(self):\n        return self\n\n    def fake")
    program(METHOD, "with C() as c: c.m = max", around.replace("return self", "return self.given"))
    with pytest.raises(MalformedProgram, match=r"`C\.m`, which the candidate defines"):
        program(METHOD, "with C() as c: c.m = max", around)


def test_a_stand_in_may_not_hide_the_method_that_stands_in_it() -> None:
    hiding = STAND_IN.replace("self.x = x", "self.x, self.m = x, max")
    with pytest.raises(MalformedProgram, match=r"`C\.m`, which the candidate defines"):
        program(METHOD, template=hiding)
    around = "class Outer:\n" + "".join(f"    {line}\n" for line in STAND_IN.splitlines())
    with pytest.raises(MalformedProgram, match=r"`C\.m`, which the candidate defines"):
        program(METHOD, "Outer.C.m = max", around)


def test_a_private_method_has_the_name_of_the_class_that_it_stands_in() -> None:
    private = METHOD.replace("m(", "__m(")
    for line in ("C._C__m = max", "c = C(); c._C__m = max", "patch.object(C, '_C__m').start()"):
        with pytest.raises(MalformedProgram, match=r"`C\._C__m`, which the candidate defines"):
            program(private, line, STAND_IN)
    for line in ("    _C__m = max\n", "class D(C):\n    def _C__m(self):\n        pass\n"):
        with pytest.raises(MalformedProgram, match="`_C__m`, which the candidate defines"):
            program(private, template=STAND_IN + line)
    program(private, "C._D__m = C.m = max", STAND_IN)


def test_a_stand_in_is_the_programs_but_for_what_the_candidate_puts_into_it() -> None:
    around = f"{STAND_IN}\nclass Fake:\n    def __init__(self, m=None):\n        self.m = m\n\nFake.m = max\n"
    free = "C.fake = max; C.__eq__ = max; C.__init__ = max; c = C(); c.x = 3; c.fake = max"
    assert program(METHOD, free, around).cases == ("test_a",)


def test_the_candidate_may_do_to_itself_what_it_likes() -> None:
    changes = "C.m = lambda self: 3\nC.__init__.__defaults__ = (1,)\nsetattr(C, 'm', C.m)\nc = C()\nc.m = max\n"
    assert program(CLASS + changes).cases == ("test_a",)


def test_where_it_is_and_what_to_do_instead_is_told() -> None:
    told = r"line 3 of the program .* `C\.m`, .* Leave that out\. .* stand-in around it: an argument"
    with pytest.raises(MalformedProgram, match=told):
        LANGUAGE.insert("# <candidate>\n\nC.m = max\ndef test_a():\n    pass\n", LANGUAGE.inspect(CLASS))
    with pytest.raises(
        MalformedProgram, match="`__code__`, which makes another function or class of what it is set on"
    ):
        program(FUNCTION, OF_FUNCTIONS[0])


NAMES = st.text("abm_é", min_size=1, max_size=3).filter(
    lambda name: name.isidentifier() and not keyword.iskeyword(name)
)


@given(part=NAMES, name=NAMES)
def test_exactly_the_names_of_a_classs_body_are_kept(part: str, name: str) -> None:
    assume("__" not in name)
    snippet = LANGUAGE.inspect(f"class Held:\n    def {part}(self):\n        return 1\n")
    template = f"# <candidate>\n\nHeld.{name} = max\ndef test_case():\n    pass\n"
    if part == name:
        with pytest.raises(MalformedProgram, match=rf"`Held\.{name}`"):
            LANGUAGE.insert(template, snippet)
    else:
        assert LANGUAGE.insert(template, snippet).cases == ("test_case",)


@given(depth=st.integers(1, 400), ending=st.sampled_from([".m = 1", "().m = 1", "['m'] = 1"]))
def test_any_depth_is_read(depth: int, ending: str) -> None:
    line = "c" + ".a" * depth + ending
    ast.parse(line)
    assert program(CLASS, f"{line}; mock.patch('__main__.C{'.m' * depth}.n')").cases
