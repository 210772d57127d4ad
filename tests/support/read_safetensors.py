#!/usr/bin/env python3
"""Reads a file as the safetensors format says it, by its own rules and nothing of ours, and prints
per tensor its name, its shape, and its values in hexadecimal floats. Needs only python3.

The rules (github.com/huggingface/safetensors, "Format"): 8 bytes, little-endian: length of the
header; the header, JSON in UTF-8 that begins with "{" and may end with spaces; then the buffer.
"__metadata__" maps strings to strings. Names are unique; data_offsets are relative to the buffer,
follow each other without holes, and end where the file ends.
"""

import json
import struct
import sys

HEADER_BYTES_MAX = 100_000_000  # of the reference implementation


def unique(pairs):
    names = [name for name, _ in pairs]
    assert len(set(names)) == len(names), "a name comes twice"
    return dict(pairs)


def main(path):
    with open(path, "rb") as file:
        data = file.read()
    assert len(data) >= 8, "too short"
    length = struct.unpack("<Q", data[:8])[0]
    assert length <= HEADER_BYTES_MAX and 8 + length <= len(data), "length of the header"
    text, buffer = data[8:8 + length], data[8 + length:]
    assert text[:1] == b"{" and text.rstrip(b" ")[-1:] == b"}", "ends of the header"
    header = json.loads(text.decode("utf-8"), object_pairs_hook=unique)
    metadata = header.pop("__metadata__", {})
    assert all(isinstance(value, str) for value in metadata.values()), "metadata is text"
    at = 0
    for name, tensor in sorted(header.items(), key=lambda one: one[1]["data_offsets"]):
        assert set(tensor) == {"dtype", "shape", "data_offsets"} and tensor["dtype"] == "F32"
        begin, end = tensor["data_offsets"]
        count = 1
        for size in tensor["shape"]:
            count *= size
        assert begin == at and end == begin + 4 * count, f"offsets of {name}"
        at = end
    assert at == len(buffer), "the buffer ends with the last tensor"
    assert (len(data) - len(buffer)) % 8 == 0, "the buffer is aligned"
    for name, tensor in header.items():
        begin, end = tensor["data_offsets"]
        values = struct.unpack(f"<{(end - begin) // 4}f", buffer[begin:end])
        print(name, tensor["shape"], *(value.hex() for value in values))


if __name__ == "__main__":
    main(sys.argv[1])
