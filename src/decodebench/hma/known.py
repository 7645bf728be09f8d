"""The connectors that vLLM registers, and which of them support the hybrid manager, per version.

Read in the sources of vLLM 0.19.1, 0.20.2, 0.21.0, 0.22.0, 0.22.1, 0.23.0, 0.24.0, 0.25.1, 0.26.0, 0.27.1, 0.28.0 to
0.33.0: `distributed/kv_transfer/kv_connector/factory.py` for the names, the bases of each class for the support. A test
holds the table against the vLLM that is installed.
"""

from dataclasses import dataclass

from decodebench.hma.facts import ClassMissing, ConnectorClass, KnownBy, Unknown
from decodebench.hma.version import NEWEST, OLDEST, Version, show

OURS = ("decodebench.connector", "DecodeBenchConnector")
"""Our own connector (module, class)."""

OUR_CLASS = ConnectorClass(
    name="DecodeBenchConnector", declares_hma=True, finishes_all_groups=True, known_by=KnownBy.TABLE
)

REPLACED = {"LMCacheMPConnector": ("lmcache.integration.vllm.lmcache_mp_connector", "LMCacheMPConnector")}
"""Registered names behind which vLLM puts another package's class where that can be imported (0.22 on)."""

REPLACED_SINCE: Version = (0, 22)


@dataclass(frozen=True, slots=True)
class _Known:
    """Registered from `since` to `until` (both included), deriving from `SupportsHMA` from `hma_since` on."""

    hma_since: Version | None
    since: Version = OLDEST
    until: Version | None = None


_TABLE = {
    "DecodeBenchConnector": _Known((0, 21)),
    "ExampleConnector": _Known(None),
    "ExampleHiddenStatesConnector": _Known((0, 22)),
    "FlexKVConnectorV1": _Known(None),
    "HF3FSKVConnector": _Known(None, since=(0, 20)),
    "HiSparseConnector": _Known((0, 30), since=(0, 30)),
    "LMCacheConnectorV1": _Known(None),
    "LMCacheMPConnector": _Known(None),
    "MoRIIOConnector": _Known((0, 30)),
    "MooncakeConnector": _Known((0, 20)),
    "MooncakeStoreConnector": _Known((0, 22), since=(0, 21)),
    "MultiConnector": _Known((0, 21)),
    "NixlConnector": _Known((0, 19)),
    "NixlPullConnector": _Known((0, 24), since=(0, 24)),
    "NixlPushConnector": _Known((0, 24), since=(0, 24)),
    "OffloadingConnector": _Known((0, 21)),
    "P2pNcclConnector": _Known(None, until=(0, 23)),
    "SimpleCPUOffloadConnector": _Known((0, 19)),
}


def known_names(version: Version) -> tuple[str, ...]:
    """The names that this version registers, in alphabetical order."""
    return tuple(name for name, known in _TABLE.items() if _is_registered(known, version))


def look_up_known(name: str, version: Version) -> ConnectorClass | Unknown:
    """The facts about a registered name from the table; raises `ClassMissing` if that version has no such connector."""
    if version < OLDEST:
        return Unknown(f"the table of connectors begins at vLLM {show(OLDEST)}, this is {show(version)}")
    known = _TABLE.get(name)
    if known is None:
        return Unknown(f"vLLM {show(min(version, NEWEST))} registers no connector {name!r} of its own")
    if not _is_registered(known, version):
        when = (
            f"since {show(known.since)}" if version < known.since else f"up to {show(known.until or version)}"
        )
        raise ClassMissing(f"vLLM has {name!r} only {when}, not in {show(version)}")
    supports = known.hma_since is not None and version >= known.hma_since
    return ConnectorClass(
        name=name,
        declares_hma=supports,
        finishes_all_groups=supports,
        is_multi=name == "MultiConnector",
        known_by=KnownBy.TABLE,
    )


def supporting_names(version: Version) -> tuple[str, ...]:
    """Registered connectors that would let the manager stay on, `MultiConnector` aside: advice for error messages."""
    classes = [look_up_known(name, version) for name in known_names(version)]
    return tuple(
        c.name for c in classes if isinstance(c, ConnectorClass) and c.declares_hma and not c.is_multi
    )


def _is_registered(known: _Known, version: Version) -> bool:
    return known.since <= version and (known.until is None or version <= known.until)
