"""The OpenAI Python SDK against a running `weir up`: streamed and whole are the same answer."""

import openai

from drive import proc
from drive.up import Up

TOKENS = 20


def measure(figures):
    for engine in ("mock", "scripted"):
        with Up("--engine", engine) as up:
            client = openai.OpenAI(base_url=f"{up.url}/v1", api_key="unused", max_retries=0, timeout=30)
            model = client.models.list().data[0].id
            _compare(figures, f"{engine} chat", _chat(client, model))
            _compare(figures, f"{engine} completion", _completion(client, model))
            figures.note(f"{engine}: {len(proc.descendants(up.pid))} processes below `weir up`")
    figures.holds("answers that were the same both ways", figures.ok, "4 of 4" if figures.ok else "fewer", "4 of 4", headline=True)


def _request(model):
    request = {"model": model, "max_tokens": TOKENS, "seed": 7}
    if model == "scripted":
        pieces = [b"caf\xc3", b"\xa9", b" \xf0\x9f", b"\x8c\x8a"] + [f" word{index}".encode() for index in range(TOKENS)]
        script = [{"delay_ms": 1, "bytes_hex": piece.hex()} for piece in pieces]
        request["extra_body"] = {"weir_script": script}
    return request


def _chat(client, model):
    request = _request(model) | {"messages": [{"role": "user", "content": "Say something about rivers."}]}
    whole = client.chat.completions.create(**request)
    streamed = client.chat.completions.create(**request, stream=True, stream_options={"include_usage": True})
    choice = whole.choices[0]
    return (choice.message.content, choice.finish_reason, whole.usage), _collect(
        streamed, lambda choice: choice.delta.content
    )


def _completion(client, model):
    request = _request(model) | {"prompt": "A weir is"}
    whole = client.completions.create(**request)
    streamed = client.completions.create(**request, stream=True, stream_options={"include_usage": True})
    choice = whole.choices[0]
    return (choice.text, choice.finish_reason, whole.usage), _collect(streamed, lambda choice: choice.text)


def _collect(chunks, text_of):
    """Text, finish reasons, usages, ids and the number of events with text of a stream."""
    text, finishes, usages, ids, pieces = "", [], [], set(), 0
    for chunk in chunks:
        ids.add(chunk.id)
        if chunk.usage:
            usages.append(chunk.usage)
        for choice in chunk.choices:
            piece = text_of(choice) or ""
            text += piece
            pieces += bool(piece)
            if choice.finish_reason:
                finishes.append(choice.finish_reason)
    return text, finishes, usages, ids, pieces


def _compare(figures, what, answers):
    (text, finish, usage), (streamed, finishes, usages, ids, pieces) = answers
    figures.holds(f"{what}, same text", text == streamed and bool(text), f"{len(streamed)} characters", len(text))
    figures.equal(f"{what}, finish reasons streamed", finishes, [finish])
    figures.equal(f"{what}, usage streamed", [_numbers(one) for one in usages], [_numbers(usage)])
    figures.equal(f"{what}, completion tokens", usage.completion_tokens, TOKENS)
    figures.equal(f"{what}, total is the sum", usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
    figures.at_least(f"{what}, prompt tokens", usage.prompt_tokens, 1)
    figures.equal(f"{what}, ids within the stream", len(ids), 1)
    figures.at_most(f"{what}, events with text", pieces, TOKENS)
    figures.note(f"{what}: {streamed!r}")


def _numbers(usage):
    return (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens)
