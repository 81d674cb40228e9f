"""What a launch happens in."""

import os

from firsttoken.session.surroundings import surroundings


def test_only_variables_that_matter_are_kept_and_secrets_are_masked() -> None:
    env = {
        "VLLM_USE_V1": "1", "VLLM_API_KEY": "abcdefgh12345678", "HF_TOKEN": "hf_abcdefghijklmnop", "NCCL_DEBUG": "INFO", "HOME": "/root",
        "AWS_SECRET_ACCESS_KEY": "x" * 20, "https_proxy": "http://me:secret@proxy:3128", "VIRTUAL_ENV": "/v",
    }  # fmt: skip
    told = surroundings(env)
    assert told["machine"]["node"] == os.uname().nodename
    assert told["environment"] == {
        "HF_TOKEN": "****", "NCCL_DEBUG": "INFO", "VIRTUAL_ENV": "/v", "VLLM_API_KEY": "****", "VLLM_USE_V1": "1",
        "https_proxy": "http://me:****@proxy:3128",
    }  # fmt: skip
