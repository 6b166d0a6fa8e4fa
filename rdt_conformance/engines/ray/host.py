"""A world of processes whose objects Ray carries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from rdt_conformance import pickling
from rdt_conformance.engines.base import DRIVER, Lane, Patience, converted
from rdt_conformance.engines.cluster.actor import WATCH
from rdt_conformance.engines.cluster.processes import ProcessHost
from rdt_conformance.engines.ray import user_code
from rdt_conformance.engines.ray.errors import translated
from rdt_conformance.engines.reference.errors import ActorDiedError


class RayHost(ProcessHost):
    """See `ProcessHost`. Tasks that take or return objects go straight to Ray's RDT."""

    def start(self, name: str) -> None:
        """See `host.Processes.start`. By the time it is done, Ray has told the process of the transport."""
        super().start(name)
        lanes = {self.submit(name, lane, user_code.thread_ident).result(Patience.call * 6): lane for lane in Lane}
        handle = self.handle(name)
        handle.know_lanes.options(concurrency_group=WATCH).remote(lanes)
        self.submit(name, Lane.MAIN, user_code.set_fetch_fail_timeout, self.settings.fetch_fail_timeout).result(
            Patience.call * 3
        )

    def submit(self, to: str, lane: Lane, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """See `host.Host.submit`."""
        future = super().submit(to, lane, function, *args)
        return converted(future, _unchanged, translated) if to == DRIVER else future

    def call_with_refs(
        self,
        actor: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        refs: Sequence[Any] | None,
        *,
        ready: bool = False,
    ) -> Future[Any]:
        """Run a message on the main lane of an actor, with references as its last argument or one as its result.

        `ready`: not before the objects exist, since Ray 2.60 cannot lend references to others.
        """
        message = pickling.dumps((function, tuple(args), refs is not None))
        return self.answer_of(actor, self._run_with, message, list(refs or []), ready)

    def _run_with(self, handle: Any, message: bytes, refs: list[Any], ready: bool) -> Any:
        if ready and refs:
            user_code.wait_made(refs, Patience.call * 3)
        return handle.run_with.remote(message, refs)

    def answer_of(self, actor: str, call: Callable[..., Any], *args: Any) -> Future[Any]:
        """What a call of Ray's brings back from an actor. Ray itself may call the transport before it submits it.

        Args:
            actor: its name.
            call: gets the actor's handle and `args`. No closure: its error would keep the references in there alive.
            args: what else it needs.
        """
        future: Future[Any] = Future()
        submitted = self.submit(DRIVER, Lane.SYSTEM, user_code.in_driver, self._ask, actor, future, call, *args)

        def not_submitted(done: Future[Any]) -> None:
            error = done.exception()
            if error is not None:
                future.set_exception(error)

        submitted.add_done_callback(not_submitted)
        return future

    def _ask(self, actor: str, future: Future[Any], call: Callable[..., Any], *args: Any) -> None:
        remote = self._remotes.get(actor)
        if remote is None:
            raise ActorDiedError(f"{actor} is dead")
        self._await(actor, remote, call(self.handle(actor), *args), future)

    def is_alive(self, name: str) -> bool:
        """Whether the process is there."""
        return name == DRIVER or name in self._remotes

    def translate(self, name: str, error: BaseException) -> BaseException:
        """An error of Ray's in the reference's terms."""
        return translated(error)


def _unchanged(value: Any) -> Any:
    return value
