"""Runs one check: as many examples as the budget allows, down to the smallest failing one."""

from __future__ import annotations

import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import hypothesis
import hypothesis.internal.conjecture.engine as hypothesis_engine
from hypothesis import HealthCheck, Phase, Verbosity, strategies as st
from hypothesis.errors import (
    DidNotReproduce,
    Flaky,
    HypothesisException,
    StopTest,
    Unsatisfiable,
    UnsatisfiedAssumption,
)

from rdt_conformance import author, interrupts
from rdt_conformance.checks.bench import Bench
from rdt_conformance.checks.carries import Carries
from rdt_conformance.checks.case import Case
from rdt_conformance.checks.stopwatch import Stopwatch
from rdt_conformance.checks.verdicts import Broken, NotExercised, broken
from rdt_conformance.contract import Level, clause as clause_of
from rdt_conformance.engines.base import Hung, NoProcess
from rdt_conformance.engines.reference.errors import NeedsRayError
from rdt_conformance.replay import Replay
from rdt_conformance.results import GONE, CheckResult, Failure, Twin

if TYPE_CHECKING:
    from rdt_conformance.checks.check import CheckSpec


_DELIVERY = "L1"
"""What is broken where nothing can be sent at all."""

_TRIES = 20
"""How often one example is run again until it fails."""
_SEARCHES = 20
"""How many searches may be broken off because the same choices led to other questions than before."""
_LEAST_ORDERS = 12
"""What a check of interleavings tries at least: there are not many pairs of calls that can meet, and each is looked for
in vain as long as another one was tried instead."""
_MOST_GIVEN_UP = 20
"""After so many examples that led nowhere a check looks no longer than it may for one that does not."""
_TWINS = 50
"""Of so many examples that went well while a failing one was made small, the one that comes nearest is shown."""
_STEPS = 60
"""The longest history that is kept of an example: the end of it."""


class Examination:
    """One check on one bench."""

    def __init__(self, spec: CheckSpec, bench: Bench) -> None:
        self._spec = spec
        self._bench = bench
        self._budget = bench.budget
        self._carries = bench.carries if spec.sends else Carries()  # found out before the clock runs
        self._watch = Stopwatch(cores=bench.engine == "local")
        # What waits for a situation to come up has its whole time: without it nothing would be known.
        self._share = 1.0 if spec.situational else bench.pace.share()
        self._examples = 0
        self._witnessed: set[str] = set()
        self._completed = False
        self._time_is_over = False
        self._failure: Failure | None = None
        self._passed: deque[Twin] = deque(maxlen=_TWINS)
        self._advice: dict[str, Failure] = {}
        self._facts: dict[str, Any] = {}
        self._reason = ""
        self._given_up = 0
        """Examples that led nowhere."""
        self._no_room = ""
        """The last error by which a source said so in an example that was given up for it."""
        self._raised: Exception | None = None
        """What nobody has to answer for but the check itself, although it may not have come again."""
        self.crash: BaseException | None = None
        """What went wrong in the check itself, if something did."""

    def run(self) -> CheckResult:
        """Try examples until the budget is spent or one fails, then make that one small."""
        self._bench.refresh()
        transfers = self._bench.transfers
        flaky = False
        if self._carries.refusal:
            self._note_refusal()
        else:
            flaky = self._search()
        self._bench.refresh()
        self._bench.pace.took(self._watch.share())
        failures = list(self._advice.values())
        if self._failure is not None:
            failures.insert(0, replace(self._failure, flaky=flaky, twin=self._twin(self._failure)))
        return CheckResult(
            name=self._spec.name,
            engine=self._bench.engine,
            clauses=self._spec.clauses,
            outcome=self._outcome(),
            seen=tuple(clause for clause in self._spec.clauses if self._was_seen(clause)),
            failures=tuple(failures),
            reason=self._reason,
            examples=self._examples,
            transfers=self._bench.transfers - transfers,
            seconds=self._watch.passed(),
            facts=self._facts,
        )

    def _search(self) -> bool:
        """Let Hypothesis look for a failing example; whether it found one that did not fail again."""
        try:
            if self._bench.replay is not None:
                self._play_again(self._search_from(0), self._bench.replay)
            else:
                with _shrinking_for(self._budget.shrink_seconds):
                    self._generate()
        except (Broken, Hung):
            return False
        except Flaky as flaky:
            if not self._told:
                self._note_crash(self._raised or flaky)
            return True
        except Unsatisfiable:
            refused = f"there was not room enough for any example that was tried: {self._no_room}"
            self._reason = self._reason or (refused if self._no_room else "every example was refused or led nowhere")
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as crash:
            self._note_crash(crash)
        return False

    def _generate(self) -> None:
        """Search, and search anew with another seed where the same choices led to other questions than before.

        What a check asks for next may depend on what a transport has done by then, and its own threads and the clock
        decide a part of that. Hypothesis breaks a search off there, with the same kind of error as where an example
        failed that does not fail again.

        Raises:
            Flaky: an example failed and did not fail again, or was cut short.
        """
        for number in range(_SEARCHES):
            try:
                self._search_from(number)()
                return
            except Flaky:
                if self._told or self._raised is not None:
                    raise
                self._take_facts({"led to other questions than before": {"repeated choices": 1}})
                if self._examples >= self._most_examples:
                    return
        self._completed = False
        self._reason = f"the same choices led to other questions in each of {_SEARCHES} searches"

    @property
    def _most_examples(self) -> int:
        return self._budget.examples * self._spec.tries

    @property
    def _told(self) -> bool:
        """Whether it is known why an example did not end as before: it was cut short when the time was over, say."""
        return self._failure is not None or self._time_is_over or bool(self._reason)

    def _search_from(self, number: int) -> Callable[[], None]:
        """What lets Hypothesis look for a failing example; each number has a seed of its own."""

        @hypothesis.settings(
            max_examples=max(1, self._most_examples - self._examples),
            # No example database: it would write into the author's folder, and a seed replays a failure exactly.
            database=None,
            deadline=None,
            report_multiple_bugs=False,
            print_blob=False,
            verbosity=Verbosity.quiet,  # it takes the time for making an example small for five minutes, and says so
            suppress_health_check=list(HealthCheck),  # pyright: ignore[reportArgumentType]
            phases=(Phase.generate, Phase.shrink),
        )
        @hypothesis.seed(self._bench.seed_for(self._spec.name) + number)
        @hypothesis.given(st.data())
        def search(data: st.DataObject) -> None:
            self._example(data)

        return search

    def _play_again(self, search: Callable[[], None], replay: Replay) -> None:
        """Run the one example of a token until it fails again, which a race may not do at once."""
        again = hypothesis.reproduce_failure(hypothesis.__version__, replay.choices.encode())(search)
        for _ in range(_TRIES):
            try:
                again()
            except DidNotReproduce:
                if self._reason:
                    return
            if self._advice:  # of a SHOULD clause, which ends no example
                return
        self._completed = False
        self._reason = f"{GONE} in {_TRIES} tries"

    def _note_refusal(self) -> None:
        """A transport that takes nothing would break every clause for the same reason: one of them is enough."""
        told = self._carries
        if not told.nothing:
            self._reason = told.refusal
        elif self._spec.clauses[0] != _DELIVERY or self._bench.refusal_told:
            self._reason = f"nothing can be sent, see {_DELIVERY}"
        else:
            self._bench.refusal_told = True
            self._failure = Failure(
                _DELIVERY, told.refusal, error=told.error, replay=self._bench.replay_command(self._spec.name)
            )

    def _note_crash(self, crash: BaseException) -> None:
        interrupts.check()  # in the middle of its own work, Hypothesis makes an error of its own of Ctrl-C
        self.crash = crash
        self._reason = f"the check itself crashed: {type(crash).__name__}: {crash}"

    def _example(self, data: st.DataObject) -> None:
        interrupts.check()
        if self._reason:
            return
        if self._failure is None and self._out_of_time():
            self._time_is_over = True
            return
        if self._failure is not None and not self._failure.example:
            # Nothing was chosen, so nothing can be made smaller; a leak that took long to see is not looked at again.
            raise broken(self._failure.clause, self._failure.happened)
        case = Case(self._bench, self._bench.acquire(), self._spec.clauses, data)
        played: Twin | None = None
        clean = False
        try:
            self._expect_all_alive(case, self._bench.kept_by, "had ended by the time that the next example began")
            given_up = self._carry_out(case)
            # Hypothesis begins with the smallest example, and comes near to the failing one when it makes that small.
            if self._failure is not None or not self._completed:
                played = Twin(tuple(case.drawn), case.world.history.steps(case.names)[-_STEPS:])
            clean = self._tidy(case)
            if given_up is not None:
                raise given_up
        except Broken as failure:
            self._examples += self._failure is None
            self._failure = self._describe(case, failure.clause, failure.happened, failure)
            raise
        except Hung as hung:
            self._bench.note_hang()
            self._examples += self._failure is None
            clause = getattr(hung, "clause", self._spec.clauses[0])
            self._failure = replace(self._describe(case, clause, str(hung), hung), stacks=hung.stacks)
            raise
        except (NotExercised, NeedsRayError) as reason:
            self._give_up(str(reason))
            return
        except NoProcess as problem:
            if not problem.of_the_transport:
                self._give_up(str(problem))
                return
            self._failure = self._describe(case, "S5", str(problem), problem)
            raise broken("S5", str(problem)) from None
        except HypothesisException:
            raise
        except Exception as raised:
            self._raised = raised
            raise
        finally:
            self._bench.release(case.world, again=clean)
        if played is not None:
            self._passed.append(played)
        self._examples += 1
        self._completed = True
        self._witnessed |= case.witnessed
        self._take_facts(case.facts)
        for clause, happened in case.advice:
            self._advice.setdefault(clause, self._describe(case, clause, happened, None))

    def _give_up(self, reason: str) -> None:
        """Try no other example. Not by an exception: Hypothesis would want to see it again, and it may not come again.

        An example that was to be smaller than one that failed is only no use.
        """
        if self._failure is None:
            self._reason = reason

    def _carry_out(self, case: Case) -> UnsatisfiedAssumption | StopTest | None:
        """Run the check; why it or Hypothesis gave up this example, which has not harmed the world, if one did."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                case.begin()
                self._spec.body(case)
            except (UnsatisfiedAssumption, StopTest) as given_up:
                self._given_up += 1
                if case.no_room:
                    self._no_room = case.no_room
                    self._take_facts({"refuses for want of room beside others": [case.no_room]})
                return given_up
        return None

    def _take_facts(self, facts: dict[str, Any]) -> None:
        for name, value in facts.items():
            if isinstance(value, list):
                value = sorted({*self._facts.get(name, []), *value})
            elif isinstance(value, dict):
                value = dict(Counter(self._facts.get(name, {})) + Counter(value))
            self._facts[name] = value

    def _tidy(self, case: Case) -> bool:
        """Drop what the example made; what does not come to an end is a hang. Whether the world can be used again."""
        if case.left_blocked:
            return False
        clean = case.world.reset(case.patience.call)
        self._expect_all_alive(case, self._spec.clauses[0], "ended while what the example had made was freed")
        if not clean:
            stacks = case.world.stacks()
            if stacks:
                hung = Hung("freeing what the example made", case.patience.call, stacks)
                raise case.hung(hung, self._spec.clauses[0])
            return False
        self._bench.kept_by = self._spec.clauses[0]
        return not case.renewed and not case.world.died()

    def _expect_all_alive(self, case: Case, clause: str, happened: str) -> None:
        """No process ends by itself, also not when no call is there to fail for it."""
        died = [name for name, by_itself in case.world.died().items() if by_itself]
        if died:
            raise broken(clause, f"the process of {' and of '.join(died)} {happened}, and nobody had ended it")

    def _out_of_time(self) -> bool:
        limit = self._budget.seconds * self._share * max(self._spec.tries, 20 if self._bench.alone else 1)
        least = _LEAST_ORDERS if self._spec.interleaves else self._budget.least * len(self._bench.devices)
        return (self._examples >= least or self._given_up >= _MOST_GIVEN_UP) and self._watch.had(limit)

    def _describe(self, case: Case, clause: str, happened: str, error: BaseException | None) -> Failure:
        return Failure(
            clause=clause,
            happened=happened,
            example=tuple(case.drawn),
            history=case.world.history.steps(case.names)[-_STEPS:],
            error=author.traceback_of(error.__cause__ if error is not None else None),
            stacks=getattr(error, "stacks", ""),
            crash=case.world.last_words(),
            replay=self._bench.replay_command(self._spec.name, case.choices),
        )

    def _twin(self, failure: Failure) -> Twin | None:
        """The example that went well and differs in the fewest choices; None if nothing was chosen."""

        def distance(twin: Twin) -> tuple[int, int]:
            return len(set(twin.example) ^ set(failure.example)), len(twin.history)

        return min(reversed(self._passed), key=distance, default=None) if failure.example else None

    def _outcome(self) -> Any:
        if self.crash is not None:
            return "error"
        if self._failure is not None and clause_of(self._failure.clause).level is not Level.SHOULD:
            return "broken"
        if self._failure is None and not self._completed:
            return "not run"
        return "passed"

    def _was_seen(self, clause: str) -> bool:
        if clause in self._witnessed or clause in self._advice:
            return True
        if self._failure is not None:
            return clause == self._failure.clause
        return self._completed and clause not in self._spec.situational


@contextmanager
def _shrinking_for(seconds: float) -> Iterator[None]:
    """Let Hypothesis, which has no setting for it, spend so long on making examples small, ours only."""
    before: Any = hypothesis_engine.MAX_SHRINKING_SECONDS
    hypothesis_engine.MAX_SHRINKING_SECONDS = seconds
    try:
        yield
    finally:
        hypothesis_engine.MAX_SHRINKING_SECONDS = before
