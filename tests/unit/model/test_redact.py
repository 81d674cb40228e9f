"""No planted secret survives, and what is no secret is left alone."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.model.redact import MASK, mask_argv, mask_bytes, mask_env, mask_text

SECRET = st.text(alphabet="abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.+/-", min_size=6, max_size=40).filter(
    lambda text: text[0].isalnum() and any(char.isdigit() for char in text)
)
NAMES = st.sampled_from(
    ["api-key", "api_key", "hf-token", "admin-api-key", "ssl-keyfile-password", "secret", "access_token", "client-secret"]
)
VARIABLES = st.sampled_from(
    ["HF_TOKEN", "VLLM_API_KEY", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "WANDB_API_KEY_2", "MY_SECRET"]
)


@pytest.mark.parametrize(
    ("argv", "masked"),
    [
        (["vllm", "serve", "m", "--api-key", "a", "b", "--port", "1"], ["vllm", "serve", "m", "--api-key", MASK, MASK, "--port", "1"]),
        (["x", "--hf-token", "a", "model"], ["x", "--hf-token", MASK, "model"]),
        (["x", "--api_key=a b"], ["x", f"--api_key={MASK}"]),
        (["env", "HF_TOKEN=a b", "A=b", "x"], ["env", f"HF_TOKEN={MASK}", "A=b", "x"]),
        (["docker", "-e", "API_KEY=a", "--env=A_SECRET=b"], ["docker", "-e", f"API_KEY={MASK}", f"--env=A_SECRET={MASK}"]),
        (["x", "-c", "--api-key", "a"], ["x", "-c", "--api-key", MASK]),
        (["x", '{"n": 1, "api_key": "a\\"b", "l": [1]}'], ["x", f'{{"n": 1, "api_key": "{MASK}", "l": [1]}}']),
        (["bash", "-c", "API_KEY='a b' x --token 'c d' --port 1"], ["bash", "-c", f"API_KEY='{MASK}' x --token '{MASK}' --port 1"]),
        (["curl", "-H", "Authorization: Bearer abcd", "http://u:p@h/"], ["curl", "-H", f"Authorization: Bearer {MASK}", f"http://u:{MASK}@h/"]),
        (["x", "--api-key", "$KEY", "--password", "12345"], ["x", "--api-key", "$KEY", "--password", MASK]),
    ],
)  # fmt: skip
def test_secrets_in_a_command_are_masked_where_they_stand(argv: list[str], masked: list[str]) -> None:
    assert list(mask_argv(argv)) == masked


@pytest.mark.parametrize(
    "text",
    [
        "--max-num-batched-tokens 2048 --max-total-tokens 8 --tokenizer a/b --tokenizer-mode slow --enable-prefix-caching",
        "--ssl-keyfile /etc/key.pem --speculative-token-map /m/map.pt --return-tokens-as-token-ids --allow-credentials",
        "--long-prefill-token-threshold 512 --bucket-time-to-first-token 0.1 0.5 --api-key-env NAME --allow-credentials yes",
        '--speculative-config {"method":"ngram","num_speculative_tokens":3}',
        "max_total_num_tokens=12345, eos_token='</s>', pad_token_id=0, num_tokens: 5, token usage: 0.01, #new-token: 7, api_key=None",
        "INFO Loading tokenizer; first token = 0.9 s; cache key: attention; KeyError: 'weights'; lookup_key='layer.0.qkv'",
        "Prefill batch, #new-seq: 1, #new-token: 6, #cached-token: 0, token usage: 0.00, input throughput (token/s): 1.2",
        "non-default args: {'model': 'a/b', 'api_key': None, 'max_num_batched_tokens': 2048}",
        "http://127.0.0.1:8000/v1/models git@github.com:a/b https://host/path?x=1 task-abcdefghijklmnopqrstuvwx",
        "CUDA_VISIBLE_DEVICES=0,1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false VLLM_API_KEY= HF_TOKEN=$HF_TOKEN",
        "pass_config={} bypass=1 monkey=2 keyboard: x hotkeys=3",
        "GET /v1/models?limit=20&max_tokens=16&stop_token=3 signal=9 significant: 4 NUM_PASSES=3 VLLM_FUSION_PASS=full auth: none",
        "Using cookiecutter; curl http://localhost:8000/health -u x",
    ],
)
def test_what_is_no_secret_is_left_alone(text: str) -> None:
    assert mask_text(text) == text
    assert mask_argv(text.split(" ")) == tuple(text.split(" "))


@pytest.mark.parametrize(
    "secret",
    [
        "hf_" + "aB3" * 11 + "z",
        "sk-" + "proj-Ab12" * 4,
        "ghp_" + "a1" * 18,
        "glpat-" + "a1" * 10,
        "AKIAIOSFODNN7EXAMPLE",
        "AIza" + "aB-" * 11 + "12",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
        "nvapi-" + "Ab1-" * 10,
    ],
)
def test_a_secret_is_known_by_its_own_shape(secret: str) -> None:
    for text in (secret, f"x {secret} y", f"'{secret}',", f"a={secret}", json.dumps({"x": [secret]}), f"https://h/?q={secret}&b=1"):
        assert secret not in mask_text(text)
        assert len(mask_text(text, equal_length=True)) == len(text)
    assert secret not in str(mask_env({"HARMLESS": secret}))


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("GET https://a.blob.example/m?sv=2022&sig=Qm9va%3D&se=2026", f"GET https://a.blob.example/m?sv=2022&sig={MASK}&se=2026"),
        ("https://b.example/x?X-Amz-Date=1&X-Amz-Signature=fe5f80f7", f"https://b.example/x?X-Amz-Date=1&X-Amz-Signature={MASK}"),
        ("wss://h/x?token=abc123", f"wss://h/x?token={MASK}"),
        ("Cookie: session=abcd; theme=dark", f"Cookie: {MASK}"),
        ("{'Set-Cookie': 'sid=1234; Path=/'}", f"{{'Set-Cookie': '{MASK}'}}"),
        ("Authorization: Basic dXNlcjpwYXNz", f"Authorization: Basic {MASK}"),
        ("curl -s -u bob:hunter2 http://h/", f"curl -s -u bob:{MASK} http://h/"),
        ("DbError: no login (user='bob', password='hunter2')", f"DbError: no login (user='bob', password='{MASK}')"),
    ],
)
def test_what_addresses_headers_and_commands_carry_is_masked(text: str, masked: str) -> None:
    assert mask_text(text) == masked


@pytest.mark.parametrize("name", ["MY_PASS", "NETRC_PASS", "CREDS", "AWS_CREDS", "DB_PW", "GIT_PAT", "SESSION_COOKIE", "REGISTRY_PASSCODE"])
def test_variables_of_many_names_are_secret(name: str) -> None:
    assert mask_env({name: "hunter22"}) == {name: MASK}
    assert mask_text(f"export {name}=hunter22") == f"export {name}={MASK}"


def test_the_lists_that_engines_log_are_masked_whole() -> None:
    assert mask_text("args: {'api_key': ['one', 'two three'], 'port': 1}") == f"args: {{'api_key': ['{MASK}', '{MASK}'], 'port': 1}}"
    assert mask_text("ServerArgs(api_key='one', port=1)") == f"ServerArgs(api_key='{MASK}', port=1)"
    assert mask_text('{\\"api_key\\": \\"one\\", \\"n\\": 1}') == f'{{\\"api_key\\": \\"{MASK}\\", \\"n\\": 1}}'


def test_a_private_key_is_masked_over_its_lines() -> None:
    text = "a\n-----BEGIN RSA PRIVATE KEY-----\nMIIabc\ndef\n-----END RSA PRIVATE KEY-----\nb"
    assert "MIIabc" not in mask_text(text)
    assert mask_text(text).endswith("\nb")


@given(
    NAMES,
    SECRET,
    st.sampled_from(["--{n}|{s}", "--{n}={s}", "--{n}|{s}|--port|1", "-x|--{n}|{s}", '{{"{n}": "{s}"}}', "bash|-c|x --{n} {s}"]),
)
def test_no_secret_behind_a_flag_survives(name: str, secret: str, form: str) -> None:
    argv = ["server", *form.format(n=name, s=secret).split("|")]
    masked = mask_argv(argv)
    assert secret not in " ".join(masked)
    assert mask_argv(masked) == masked
    assert secret not in mask_text(" ".join(argv))


@given(
    VARIABLES,
    SECRET,
    st.sampled_from(["{n}={s}", "-e|{n}={s}", "--env={n}={s}", "bash|-c|export {n}={s}; run", "bash|-c|{n}='{s}' run", '{n}="{s}"']),
)
def test_no_secret_in_an_assignment_survives(name: str, secret: str, form: str) -> None:
    argv = form.format(n=name, s=secret).split("|")
    masked = mask_argv(argv)
    assert secret not in " ".join(masked)
    assert mask_argv(masked) == masked
    assert secret not in mask_text(" ".join(argv))
    assert mask_env({name: secret}) == {name: MASK}


@given(st.text(alphabet="kKeytohfapisc_-=: '\"\\[](){}*$&?@/.,0a\n\t|", max_size=60))
def test_masking_again_changes_nothing(text: str) -> None:
    once = mask_text(text)
    assert mask_text(once) == once
    same = mask_text(text, equal_length=True)
    assert len(same) == len(text)
    assert mask_text(same, equal_length=True) == same


@given(st.binary(max_size=80))
def test_raw_bytes_keep_their_length(data: bytes) -> None:
    assert len(mask_bytes(data)) == len(data)


def test_a_secret_between_other_bytes_is_masked_in_place() -> None:
    data = b"\xff\xfe api_key='one' \x80 hf_" + b"a1" * 17 + b" \xe2\x96\x88"
    masked = mask_bytes(data)
    assert masked == b"\xff\xfe api_key='***' \x80 " + b"*" * 37 + b" \xe2\x96\x88"


@given(st.lists(st.sampled_from(["vllm", "serve", "--port", "8000", "--tokenizer", "a/b", "-tp", "2", "--no-x", "text"]), max_size=8))
def test_a_command_without_secrets_is_unchanged(argv: list[str]) -> None:
    assert mask_argv(argv) == tuple(argv)
