"""Reads a trace with Perfetto's own schema and, if it is installed, its trace processor. Exit code 77: nothing to check with.

Usage: check_perfetto.py run.pftrace
"""

import shutil
import sys

try:
    from google.protobuf.unknown_fields import UnknownFieldSet
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb
except ImportError as e:
    print(f"skipped: the Python package perfetto is not installed ({e})")
    sys.exit(77)


def check_known(message):
    """Every field that was written must exist in the schema, down the tree."""
    unknown = [f.field_number for f in UnknownFieldSet(message)]
    assert not unknown, f"{message.DESCRIPTOR.full_name} has no fields {unknown}"
    for field, value in message.ListFields():
        if field.message_type is not None:
            is_list = hasattr(value, "add") or hasattr(value, "append")
            for part in value if is_list else [value]:
                check_known(part)


def check_schema(path):
    trace = pb.Trace()
    with open(path, "rb") as f:
        trace.ParseFromString(f.read())
    depth, slices, last = {}, 0, 0
    tracks = {p.track_descriptor.uuid for p in trace.packet if p.HasField("track_descriptor")}
    names = set()
    for packet in trace.packet:
        check_known(packet)
        names.update(n.iid for n in packet.interned_data.event_names)
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        assert event.track_uuid in tracks
        assert packet.timestamp >= last
        last = packet.timestamp
        if event.type == pb.TrackEvent.TYPE_SLICE_BEGIN:
            assert event.name_iid in names
            depth[event.track_uuid] = depth.get(event.track_uuid, 0) + 1
            slices += 1
        elif event.type == pb.TrackEvent.TYPE_SLICE_END:
            depth[event.track_uuid] -= 1
        else:
            assert event.type == pb.TrackEvent.TYPE_COUNTER
            assert event.HasField("double_counter_value")
        assert depth.get(event.track_uuid, 0) in (0, 1)
    assert slices > 0 and not any(depth.values())
    print(f"schema: {len(trace.packet)} packets, {len(tracks)} tracks, {slices} slices")
    return slices


def check_queries(path, slices):
    binary = shutil.which("trace_processor_shell") or shutil.which("trace_processor")
    if binary is None:
        print("skipped: no trace_processor_shell on the path")
        return
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

    with TraceProcessor(trace=path, config=TraceProcessorConfig(bin_path=binary)) as tp:
        errors = list(tp.query("select name, value from stats where severity = 'error' and value > 0"))
        assert not errors, [(e.name, e.value) for e in errors]
        row = next(iter(tp.query("select count(*) n, min(dur) shortest, max(depth) depth from slice")))
        assert row.n == slices and row.shortest >= 0 and row.depth == 0, (row.n, slices, row.shortest, row.depth)
        print(f"trace processor: {row.n} slices")


check_queries(sys.argv[1], check_schema(sys.argv[1]))
