"""One link as a user writes it: figures as text, checked here, resolved into integers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from comet_sim.errors import InputError
from comet_sim.network.config import HONOURED, TCP_INITIAL_WINDOW, TCP_WINDOW, LinkConfig
from comet_sim.network.explain import suggestion
from comet_sim.network.traces import read_trace
from comet_sim.units import exact_duration, parse_duration, parse_rate, parse_ratio, parse_size

__all__ = ["NEVER", "UNLIMITED", "LinkSpec", "Outage", "RateStep"]

UNLIMITED = "unlimited"
"""A rate at which serialising takes no time, and a queue that drops nothing."""

NEVER = "never"
"""An idle_reset that does not happen."""

_MOST = 1000
"""Most outages and steps of a link."""

_CONNECTION = frozenset({"window", "initial_window", "idle_reset"})
_CAPACITY = frozenset({"rate", "rate_steps", "trace"})


def _text(parse: Callable[[str], object]) -> BeforeValidator:
    """Return a validator that keeps a figure as text once `parse` has accepted it."""

    def check(value: object) -> str:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError(f"expected text with a figure and its unit, but read {value!r}")
        text = str(value).strip()
        try:
            parse(text)
        except InputError as error:
            raise ValueError(str(error)) from None
        return text

    return BeforeValidator(check)


def _rate(text: str) -> int | None:
    return None if text == UNLIMITED else parse_rate(text)


def _queue(text: str) -> int | None:
    return None if text == UNLIMITED else parse_size(text)


def _idle(text: str) -> int | None:
    time = None if text == NEVER else parse_duration(text)
    if time == 0:
        raise InputError(f"a connection cannot be new again after no time, but read {text!r}")
    return time


def _segment(text: str) -> int:
    size = parse_size(text)
    if size < 1:
        raise InputError(f"a packet must carry at least 1B of message, but read {text!r}")
    return size


def _loss(text: str) -> object:
    ratio = parse_ratio(text)
    if ratio == 1:
        raise InputError(f"with a loss of {text} nothing would ever arrive; give less than 100%")
    return ratio


def _transport(text: str) -> str:
    if text not in HONOURED:
        raise InputError(f"unknown transport {text!r}; {suggestion(text, tuple(HONOURED))}")
    return text


_Duration = Annotated[str, _text(parse_duration)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Outage(_Table):
    """A time in which a link sends nothing; what is under way already arrives."""

    start: Annotated[_Duration, Field(description="virtual time, such as 2s")]
    end: Annotated[_Duration, Field(description="virtual time, such as 2.5s")]

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if parse_duration(self.end) <= parse_duration(self.start):
            raise ValueError(f"an outage must end after it starts, but read {self.start} to {self.end}")
        return self


class RateStep(_Table):
    """A new rate from some time on."""

    at: Annotated[_Duration, Field(description="virtual time, such as 5s")]
    rate: Annotated[str, _text(parse_rate), Field(description="such as 10Mbit")]


class LinkSpec(_Table):
    """A link as written in a profile or scenario; keys left out come from the less specific section.

    `delay` is one-way, `rtt` there and back; giving both is an error, as are `rate` and `trace`.
    """

    rate: Annotated[str | None, _text(_rate), Field(description="such as 5Gbit, or unlimited")] = None
    delay: Annotated[str | None, _text(parse_duration), Field(description="one-way, such as 20ms")] = None
    rtt: Annotated[str | None, _text(parse_duration), Field(description="there and back, such as 40ms")] = (
        None
    )
    packet_overhead: Annotated[
        str | None, _text(parse_size), Field(description="headers a packet, such as 66B")
    ] = None
    mss: Annotated[
        str | None, _text(_segment), Field(description="message bytes a packet, such as 1448B")
    ] = None
    host: Annotated[
        str | None,
        _text(parse_duration),
        Field(description="time a message spends in its sender, such as 50us"),
    ] = None
    transport: Annotated[
        str | None,
        _text(_transport),
        Field(description=", ".join(HONOURED), json_schema_extra={"examples": list(HONOURED)}),
    ] = None
    jitter: Annotated[
        str | None,
        _text(parse_duration),
        Field(description="largest extra delay, drawn evenly for each message (tcp-segments: packet)"),
    ] = None
    loss: Annotated[
        str | None, _text(_loss), Field(description="share of packets that get lost, such as 0.1%")
    ] = None
    queue: Annotated[
        str | None,
        _text(_queue),
        Field(description="bytes that may wait before the line, such as 256kB, or unlimited; tcp-segments"),
    ] = None
    outages: Annotated[
        tuple[Outage, ...] | None,
        Field(max_length=_MOST, description="times in which nothing is sent: tables of start and end"),
    ] = None
    rate_steps: Annotated[
        tuple[RateStep, ...] | None,
        Field(max_length=_MOST, description="rates that follow the first one: tables of at and rate"),
    ] = None
    trace: Annotated[
        str | None,
        _text(lambda text: read_trace(Path(text))),
        Field(
            description="a mahimahi trace in place of a rate; in a file, its path is relative to that file"
        ),
    ] = None
    classes: Annotated[
        int | None,
        Field(ge=1, le=8, strict=True, description="priority classes, each with a connection of its own"),
    ] = None
    window: Annotated[
        str | None,
        _text(_segment),
        Field(description=f"most bytes a TCP connection has under way, {TCP_WINDOW // 2**20}MiB by default"),
    ] = None
    initial_window: Annotated[
        int | None,
        Field(
            ge=1,
            le=65_535,
            strict=True,
            description=f"packets a new TCP connection sends at once, {TCP_INITIAL_WINDOW} by default",
        ),
    ] = None
    idle_reset: Annotated[
        str | None,
        _text(_idle),
        Field(description="idle time after which a TCP connection's window is that of a new one, or never"),
    ] = None

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if self.delay is not None and self.rtt is not None:
            raise ValueError(
                f"delay ({self.delay}, one-way) and rtt ({self.rtt}, there and back) exclude each other"
            )
        if self.rtt is not None and parse_duration(self.rtt) % 2:
            raise ValueError(
                f"rtt {self.rtt} does not split into two whole numbers of ns; give the one-way delay"
            )
        if self.trace is not None and (self.rate is not None or self.rate_steps):
            other = "rate" if self.rate is not None else "rate_steps"
            raise ValueError(f"{other} and trace exclude each other: a trace says what can be sent when")
        return self

    def over(self, base: LinkSpec) -> LinkSpec:
        """Return this link with the keys it leaves out taken from `base`.

        A latency replaces the base's however it was given, a rate or trace also the steps or trace of the
        base, and another transport what the base says of connections.
        """
        own = self.model_dump(exclude_none=True)
        left: set[str] = {"delay", "rtt"} if "delay" in own or "rtt" in own else set()
        if "rate" in own or "trace" in own:
            left |= _CAPACITY
        if "transport" in own:
            left |= _CONNECTION - HONOURED[own["transport"]]
        taken = base.model_dump(exclude_none=True, exclude=left)
        return LinkSpec(**{**taken, **own})

    def one_way(self) -> LinkSpec:
        """Return the same link with its latency given as `delay`."""
        if self.rtt is None:
            return self
        delay = exact_duration(parse_duration(self.rtt) // 2)
        return self.model_copy(update={"rtt": None, "delay": delay})

    def config(self, where: str) -> LinkConfig:
        """Return the link in integers; `InputError`, naming `where`, if it is incomplete or impossible."""
        link = self.one_way()
        if link.delay is None or (link.rate is None and link.trace is None):
            missing = "latency (delay or rtt)" if link.delay is None else "rate (or trace)"
            raise InputError(f"{where} has no {missing}; give it there or in [defaults]")
        found: dict[str, Any] = {"rate": None, "delay": 0}
        for key, read in _READERS.items():
            value = getattr(link, key)
            if value is not None:
                found[key] = read(value)
        try:
            return LinkConfig(**found)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None


_READERS: dict[str, Callable[[Any], object]] = {
    "rate": _rate,
    "delay": parse_duration,
    "packet_overhead": parse_size,
    "mss": parse_size,
    "host": parse_duration,
    "transport": str,
    "jitter": parse_duration,
    "loss": parse_ratio,
    "queue": _queue,
    "outages": lambda given: tuple((parse_duration(each.start), parse_duration(each.end)) for each in given),
    "rate_steps": lambda given: tuple((parse_duration(each.at), parse_rate(each.rate)) for each in given),
    "trace": lambda text: read_trace(Path(text)),
    "classes": int,
    "window": parse_size,
    "initial_window": int,
    "idle_reset": _idle,
}
