"""A trainer's checkpoint as another reader of its format sees it: whole tensors, by however many ranks they were written."""
import hashlib
import json
import re

CONV1D = re.compile(r"\.(c_attn|c_proj|c_fc)\.weight$")  # GPT-2's, [in, out] on the Hub
SLICE = re.compile(r"(.+)\[(\d+):(\d+),(\d+):(\d+)\]\[(\d+):(\d+)\]$")


def read(path):
    """{name: (shape, bytes)} of a safetensors file of f32."""
    raw = memoryview(path.read_bytes())
    n = int.from_bytes(raw[:8], "little")
    header = json.loads(bytes(raw[8:8 + n]))
    header.pop("__metadata__")
    assert all(t["dtype"] == "F32" for t in header.values())
    return {name: (t["shape"], raw[8 + n:][slice(*t["data_offsets"])]) for name, t in header.items()}


def files(folder, base):
    return sorted(p for p in folder.iterdir() if re.fullmatch(rf"{base}(-\d{{5}}-of-\d{{5}})?\.safetensors", p.name))


def turned(shape, data):
    rows, cols = shape
    f = data.cast("B").cast("f")
    return b"".join(f[c::cols].tobytes() for c in range(cols)) if rows and cols else b""


def model(folder):
    """{name: (shape, bytes)} as [out, in]."""
    found = {}
    for path in files(folder, "model"):
        for name, (shape, data) in read(path).items():
            assert name not in found
            found[name] = (shape[::-1], turned(shape, data)) if CONV1D.search(name) else (shape, bytes(data))
    return found


def moments(folder):
    """{exp_avg.<name> or exp_avg_sq.<name>: bytes} as [out, in]; every element once."""
    shapes = {name: shape for name, (shape, _) in model(folder).items()}
    found, missing = {}, {}
    for path in files(folder, "optimizer"):
        for name, (shape, data) in read(path).items():
            part = SLICE.match(name)
            if part is None:
                found[name] = turned(shape, data) if CONV1D.search(name) else bytes(data)
                continue
            tensor, (r0, r1, c0, c1, first, end) = part[1], map(int, part.groups()[1:])
            rows, cols = (shapes[tensor.split(".", 1)[1]] + [1])[:2]
            whole, left = found.setdefault(tensor, bytearray(4 * rows * cols)), missing.setdefault(tensor, [rows * cols])
            assert r1 <= rows and c1 <= cols and end <= (r1 - r0) * (c1 - c0) and len(data) == 4 * (end - first)
            while first < end:  # row by row
                r, c = divmod(first, c1 - c0)
                n = end - first if (c0, c1) == (0, cols) else min(end - first, c1 - c0 - c)
                at = 4 * ((r0 + r) * cols + c0 + c)
                whole[at:at + 4 * n], data = data[:4 * n], data[4 * n:]
                first, left[0] = first + n, left[0] - n
    assert not any(n for n, in missing.values())
    assert set(found) == {f"{m}.{name}" for m in ("exp_avg", "exp_avg_sq") for name in shapes}
    return {name: bytes(data) for name, data in found.items()}


def digests(folder):
    """Of the model's tensors and of the moments."""
    def digest(pairs):
        return hashlib.sha256(b"".join(name.encode() + b"\0" + data for name, data in sorted(pairs))).hexdigest()
    return [digest((name, data) for name, (_, data) in model(folder).items()), digest(moments(folder).items())]
