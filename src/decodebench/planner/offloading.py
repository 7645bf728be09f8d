"""`--kv-offloading-size` is a connector in disguise: the transfer config that the engine makes of it.

vLLM 0.32 `config/vllm.py _post_init_kv_transfer_config`, read alike in 0.23 to 0.33. Before 0.23 the engine decides
on the hybrid manager first and makes the connector afterwards, which is not planned here.
"""

from decodebench.errors import UserError

SINCE = (0, 23)
SIMPLE = "VLLM_USE_SIMPLE_KV_OFFLOAD"
BACKENDS = ("native", "lmcache")


def offloading_config(backend: str, version: tuple[int, int], *, simple: bool) -> dict[str, str]:
    """The transfer config that stands for `--kv-offloading-backend`; `simple` is the variable of that name."""
    if version < SINCE:
        raise UserError(
            f"--kv-offloading-size is planned from vLLM 0.23 on, not for {version[0]}.{version[1]}",
            "name the connector itself in --kv-transfer-config",
        )
    if backend not in BACKENDS:
        raise UserError(
            f"--kv-offloading-backend {backend!r} is not known", f"accepted: {', '.join(BACKENDS)}"
        )
    native = "SimpleCPUOffloadConnector" if simple else "OffloadingConnector"
    return {"kv_connector": native if backend == "native" else "LMCacheMPConnector", "kv_role": "kv_both"}
