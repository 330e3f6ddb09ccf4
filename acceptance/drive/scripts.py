"""Request bodies for the scripted engine."""

MODEL = "scripted"


def step(data, delay_ms=0):
    """One token: its bytes, after a wait."""
    data = data.encode() if isinstance(data, str) else data
    return {"delay_ms": delay_ms, "bytes_hex": data.hex()}


def words(count, delay_ms=0):
    """`count` tokens that tell their place."""
    return [step(f" t{index}", delay_ms) for index in range(count)]


def chat(script, *, fault=None, stream=True, **more):
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "go"}],
        "stream": stream,
        "weir_script": script,
        **more,
    }
    if fault:
        body["weir_fault"] = {"at": fault[0], "kind": fault[1]}
    return body


CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
