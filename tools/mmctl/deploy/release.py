"""Which release a deployment is judged for: what the servers say of themselves. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from mmctl.errors import InputError
from mmctl.triton.releases import Release, parse_release, release_of_server


def release_for(
    target: str, stated: str | None, versions: Sequence[str], built_for: Release
) -> tuple[Release, tuple[str, ...]]:
    """The oldest of the replicas, and warnings. `versions` are those that they say; `stated` is
    what mmctl.yaml says; pipelines were compiled for `built_for` and later.

    Raises InputError when mmctl.yaml states another release than a server: rules and forms were
    chosen for that one. And for a server that is older than what was compiled.
    """
    known = {version: release_of_server(version) for version in dict.fromkeys(versions)}
    found = [release for release in known.values() if release is not None]
    for version, release in known.items():
        if stated is not None and release not in (None, parse_release(stated)):
            raise InputError(
                f"target `{target}`: mmctl.yaml says release {stated}, and its Triton is "
                f"{release} ({version})",
                hint=f'write `release: "{release}"`, or leave it out: the server is asked',
            )
    unknown = tuple(
        f"Triton {version} is of no release that mmctl knows; it is taken for {stated or built_for}"
        for version, release in known.items()
        if release is None
    )
    oldest = min(found) if found else parse_release(stated or str(built_for))
    if oldest < built_for:
        raise InputError(
            f"target `{target}`: its Triton is {oldest}, and what was built is for {built_for} on",
            hint=f'write `release: "{oldest}"` for it in mmctl.yaml, and run `mmctl build`',
        )
    return oldest, unknown
