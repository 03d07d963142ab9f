"""What a server says about a model: read once, and again when it may have changed."""

from __future__ import annotations

from dataclasses import dataclass

from mmctl.cache.keys import Identity
from mmctl.tensors import Signature


@dataclass(frozen=True, slots=True)
class Description:
    """`identity.version` is "" where the server was not asked which version answers.

    `decoupled`: a request has any number of answers. `stateful`: requests belong to sequences.
    `ensemble`: Triton itself runs it, node by node. `mixes_up`: Triton's own cache is on for it,
    and may give it the answer of another request.
    """

    signature: Signature
    identity: Identity
    decoupled: bool = False
    stateful: bool = False
    ensemble: bool = False
    mixes_up: bool = False


@dataclass(frozen=True, slots=True)
class Candidacy:
    """How many percent of a model's requests its candidate answers (`share`), and of how many
    others it gets a copy (`shadow`); both 0 without a candidate.
    """

    share: float = 0.0
    shadow: float = 0.0


NO_CANDIDATE = Candidacy()
