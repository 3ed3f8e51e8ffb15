"""What a program sets is refused only where it changes a part of the candidate."""

from __future__ import annotations

import pytest

from tests.languages.python.parts import CLASS, FUNCTION, places, program


@pytest.mark.parametrize(
    "line",
    [
        "C.more = 3",
        "C.told = 'a'",
        "C.kept = None",
        "C.names = ['a', -1]",
        "C.limit, other = 3, 1",
        "[other, (C.limit, C.kept)] = 1, (3, None)",
        "C.seen = set(); C.queue = collections.deque(); C.groups = defaultdict(list)",
        "from collections import defaultdict; monkeypatch.setattr(C, 'groups', defaultdict(list))",
        "C.given, C.also = {}, made()",
        "saved = C.seen; C.seen = saved; mock.patch.object(C, 'seen', saved).start()",
        "self.saved = C.seen; undo = lambda: setattr(C, 'seen', self.saved)",
        "saved, other = getattr(C, 'seen'), 1; C.seen = saved",
        "saved = C.given; saved.m = saved.limit = 1",
        "monkeypatch.setattr(C, 'kept', None)",
        "monkeypatch.setattr('__main__.C.kept', None)",
        "C.__test__ = False",
        "with Lent() as c: c.m = max",
        "with Lent().given as c: c.m = max",
        "c = C() if C else mock.Mock(); c.m = max",
        "c = C and mock.Mock(); c.m = max",
        "c = None; c = mock.Mock(); c.m = max; del c",
        "c, other = mock.Mock(), C(); c.m = max",
        "mock.patch('%s.C.m' % sys.__name__).start(); mock.patch('{}.C.m'.format('requests')).start()",
        "where = 'requests.C.m'; mock.patch(where).start(); monkeypatch.setattr(where, max)",
        "path = '__main__.C.m'; path = 'requests.C.m'; mock.patch(path).start()",
        "c = Called(); c.on_end = max; c._Calling__done = max; mock.patch.object(c, 'on_end').start()",
        "c = C(); out = {}; out.update(c.__dict__, m=1); out.update(vars(C), **{'m': 1}); out.update(vars(c)).pop('m')",
        "C._C__hidden = 2",
        "C._Derived__own = _Derived._Derived__helper = C._C_helper = C._C__m = max",
        "c = C(); c._C__hidden = 3; c._Derived__own = max",
        "mock.patch.multiple(C, __abstractmethods__=set()).start()",
        "c = C(); c.x = 3; c.size = 4; c.limit = 5; c.on_end = max; c.kept = max; del c.size",
        "c = C(); vars(c)['x'] = 3; setattr(c, 'x', 3); mock.patch.object(c, 'x', 3).start()",
        "c = C(); c.client.m = max; c.m.calls = 0",
        "c = mock.Mock(); c.m = max; type(c).m = mock.PropertyMock()",
        "c = C(); c = mock.Mock(); c.m = max",
        "given = lambda c: setattr(c, 'm', max)",
        "for c in [mock.Mock()]: c.m = max",
        "fake = mock.Mock(spec=C); fake.m.return_value = 3; fake.__class__ = C",
        "Fake = type('Fake', (), {}); Fake.m = max; Fake().m = max; setattr(Fake, 'm', max)",
        "mock.patch('requests.C.m').start(); mock.patch('requests.get').start()",
        "mock.patch.object(sys, 'm', create=True).start()",
        "mock.patch.object(dict, 'm', create=True).start()",
        "mock.patch.multiple('os', getcwd=max).start()",
        "assert getattr(C, 'm') and vars(C)['m'] and C.__dict__.get('m') and C().__dict__ == {'m': 1}",
        "assert C.m.__code__.co_argcount == 1 and C.__bases__ and C.__class__ is type",
        "out = {}; out['m'] = C; out.update(m=C); out.pop('m')",
        "sys.m = C; own.given = C",
        "client.patch('/m', {'m': 1}); client.patch(C, name='m')",
        "mocker.spy(C, 'm')",
        "self.other = C(); self.other = mock.Mock(); self.other.m = max",
    ],
)
def test_what_the_candidate_does_not_define_may_be_set(line: str) -> None:
    for place in places(line):
        program(CLASS, line, f"# <candidate>\n\n{place}")


@pytest.mark.parametrize("line", ["f.calls = 0", "setattr(f, 'calls', 0)", "own.f.calls = 0", "f.__name__ = 'g'"])
def test_so_may_plain_attributes_of_functions(line: str) -> None:
    for place in places(line):
        program(FUNCTION, line, f"# <candidate>\n\n{place}")
