"""Ask the desk service. `python asking.py` records the answers of a new release."""

import json
import os
import time
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

from openai import DefaultHttpxClient, OpenAI, OpenAIError

DESKS = ["Python", "Rust", "other"]
FILE = Path(__file__).with_name("release.json")


def desk_of(text):
    return text.strip() if text.strip() in DESKS else "unknown"


def connect(url):
    """A client for the server at a URL, which has two minutes to start."""
    health, deadline = url.removesuffix("/v1") + "/health", time.monotonic() + 120
    direct = build_opener(ProxyHandler({}))  # a company's proxy does not reach this machine
    while True:
        try:
            direct.open(health, timeout=10).close()
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
    http = DefaultHttpxClient(trust_env=False)
    return OpenAI(base_url=url, api_key="none", timeout=60, http_client=http)


def ask(client, model, question):
    messages = [{"role": "user", "content": question}]
    options = {"model": model, "max_tokens": 3, "temperature": 0}
    chat = client.chat.completions.create(messages=messages, **options)
    return chat.choices[0].message.content


def desk_for(client, model, question, path):
    """Ask for the desk of a question, `unknown` if the server fails, and log it."""
    entry = {"time": time.time(), "model": model, "question": question, "text": ""}
    began = time.perf_counter()
    try:
        entry["text"] = ask(client, model, question)
    except OpenAIError as error:
        entry["error"] = repr(error)
    entry["ms"] = 1000 * (time.perf_counter() - began)
    entry["desk"] = desk_of(entry["text"])
    with open(path, "a", encoding="utf-8") as log:
        log.write(json.dumps(entry) + "\n")
    return entry["desk"]


def ask_release():
    """The rows of release.json, each with what DESK_MODEL at DESK_URL answers now."""
    client, model = connect(os.environ["DESK_URL"]), os.environ["DESK_MODEL"]
    rows = json.loads(FILE.read_text(encoding="utf-8"))
    return [row | {"now": desk_of(ask(client, model, row["question"]))} for row in rows]


if __name__ == "__main__":
    rows = ask_release()
    for row in rows:
        row["answer"] = row.pop("now")
    FILE.write_text(json.dumps(rows), encoding="utf-8")
