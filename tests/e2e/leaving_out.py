"""A connector that leaves one KV cache group's pages out of a fill from donors: the control that shows a group counts.

A server loads it in place of ours (`kv_connector_module_path`). A request asks by its seed: `LEAVE_OUT + group`.
"""

from dataclasses import replace

from decodebench.connector import DecodeBenchConnector as Ours
from decodebench.kv.writes import GroupWrites, Sources

LEAVE_OUT = 1_000_000


class DecodeBenchConnector(Ours):
    def build_connector_meta(self, scheduler_output):
        meta = super().build_connector_meta(scheduler_output)
        for request_id, fill in meta.fills.items():
            asked = self._scheduler_half._requests[request_id]
            if fill.sources and asked.seed >= LEAVE_OUT:
                meta.fills[request_id] = without(fill, asked.seed - LEAVE_OUT)
        return meta


def without(fill, group):
    def left(values, nothing):
        return tuple(nothing if number == group else value for number, value in enumerate(values))

    return replace(fill, writes=left(fill.writes, GroupWrites()), sources=left(fill.sources, Sources()))
