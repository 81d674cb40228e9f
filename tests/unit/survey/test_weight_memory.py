"""Bytes of weights a rank: whole, divided, repeated and dealt out, against what real engines held."""

from typing import Any

import pytest
from model_folders import EAGLE3, LLAMA, decoder, eagle3_tensors

from firsttoken.survey.model_config import read_shape
from firsttoken.survey.safetensors import BITS, Tensor
from firsttoken.survey.weight_memory import Loading, RankWeights, Split, rank_weights, stage_layers


def tensors(shapes: dict[str, tuple[str, tuple[int, ...]]]) -> list[Tensor]:
    found = []
    for name, (dtype, shape) in shapes.items():
        count = 1
        for one in shape:
            count *= one
        found.append(Tensor(name, dtype, shape, 0, count * BITS[dtype] // 8))
    return found


def held(
    config: dict[str, Any], shapes: dict[str, tuple[str, tuple[int, ...]]], loading: Loading | None = None, **split: Any
) -> RankWeights:
    return rank_weights(tensors(shapes), read_shape(config), Split(**split), loading or Loading())


WHOLE = sum(one.bytes for one in tensors(decoder(LLAMA)))
NORMS = (2 * 8 + 1) * 256 * 2


def test_one_rank_holds_everything() -> None:
    assert held(LLAMA, decoder(LLAMA)).by_rank == (WHOLE,)


def test_matrices_are_cut_and_norms_are_whole_on_every_rank() -> None:
    assert held(LLAMA, decoder(LLAMA), tp=4).by_rank == ((WHOLE - NORMS) // 4 + NORMS,) * 4


def test_key_and_value_heads_are_repeated_where_there_are_fewer_than_ranks() -> None:
    heads = 8 * 2 * 128 * 256 * 2
    assert held(LLAMA, decoder(LLAMA), tp=8).by_rank[0] == (WHOLE - NORMS - heads) // 8 + heads // 4 + NORMS


def test_pipeline_stages_hold_their_layers_and_the_ends_their_tables() -> None:
    first, last = held(LLAMA, decoder(LLAMA), pp=2).by_rank
    assert first + last == WHOLE
    assert last - first == 512  # the last norm


def test_layers_that_do_not_divide_go_to_stages_before_the_last() -> None:
    assert [len(one) for one in stage_layers(61, 4)] == [15, 15, 16, 15]
    assert [len(one) for one in stage_layers(7, 2)] == [4, 3]
    assert [len(one) for one in stage_layers(8, 2, (5, 3))] == [5, 3]
    assert [len(one) for one in stage_layers(1, 1)] == [1]


def test_a_tied_table_is_loaded_once_and_twice_over_two_stages() -> None:
    config = {**LLAMA, "tie_word_embeddings": True}
    table = 2048 * 256 * 2
    assert held(config, decoder(config)).total == WHOLE - table
    assert held(config, decoder(LLAMA)).total == WHOLE - table  # also where the file holds a copy
    assert held(config, decoder(config), pp=2).total == WHOLE


def test_experts_are_cut_like_matrices_or_dealt_out_whole() -> None:
    config = {**LLAMA, "num_local_experts": 8, "num_hidden_layers": 1}
    expert = {f"model.layers.0.mlp.experts.{n}.up_proj.weight": ("BF16", (512, 256)) for n in range(8)}
    shapes = {
        **expert,
        "model.layers.0.mlp.gate.weight": ("BF16", (8, 256)),
        "model.layers.0.mlp.shared_expert.up_proj.weight": ("BF16", (512, 256)),
    }
    router, one = 8 * 256 * 2, 512 * 256 * 2
    assert held(config, shapes, tp=4).by_rank[0] == 2 * one + router + one // 4
    assert held(config, shapes, tp=4, ep=8).by_rank[0] == one + router + one // 4


def test_attention_over_fewer_ranks_keeps_more_of_it() -> None:
    shapes = {"model.layers.0.self_attn.o_proj.weight": ("BF16", (256, 256)), "model.layers.0.mlp.up_proj.weight": ("BF16", (512, 256))}
    assert held(LLAMA, shapes, tp=4, attention_tp=1).by_rank[0] == 256 * 256 * 2 + 512 * 256 * 2 // 4


def test_floats_become_the_wanted_type_and_scales_stay() -> None:
    shapes = {
        "model.layers.0.mlp.up_proj.weight": ("F32", (64, 64)),
        "model.layers.0.mlp.down_proj.weight": ("F8_E4M3", (64, 64)),
        "model.layers.0.mlp.down_proj.weight_scale_inv": ("F32", (1, 1)),
    }
    assert held(LLAMA, shapes, Loading(dtype="bfloat16")).total == 64 * 64 * 2 + 64 * 64 + 4


def test_weights_that_are_quantised_while_loading_shrink_but_for_tables_and_norms() -> None:
    tables = 2 * 2048 * 256 * 2
    assert held(LLAMA, decoder(LLAMA), Loading(bits=8)).total == (WHOLE - tables - NORMS) // 2 + tables + NORMS


def test_a_latents_up_projection_is_kept_twice_where_it_is_quantised_or_the_engine_copies_it() -> None:
    name = "model.layers.0.self_attn.kv_b_proj.weight"
    plain, quantised = {name: ("BF16", (64, 64))}, {name: ("F8_E4M3", (64, 64))}
    assert held(LLAMA, plain).total == 64 * 64 * 2
    assert held(LLAMA, plain, Loading(copies_latent=True)).total == 64 * 64 * 4
    assert held(LLAMA, quantised, Loading(dtype="bfloat16")).total == 64 * 64 * 3


def test_prediction_layers_are_loaded_only_to_draft() -> None:
    shapes = {**decoder(LLAMA), "model.layers.8.eh_proj.weight": ("BF16", (256, 512)), "mtp.fc.weight": ("BF16", (256, 512))}
    assert held(LLAMA, shapes).total == WHOLE
    assert held(LLAMA, shapes, Loading(drafts=True)).total == WHOLE + 2 * 256 * 512 * 2


def test_a_head_keeps_its_fusing_matrix_whole_and_leaves_its_mask_out() -> None:
    found = held(EAGLE3, eagle3_tensors(), tp=2)
    assert found.by_rank[0] == 256 * 768 * 2 + 2 * 256 * 2 + (1024 * 256 * 2 + 256 * 512 * 2) // 2 + 1024 * 8


def test_a_vocabulary_is_padded_to_sixty_four() -> None:
    config = {**LLAMA, "vocab_size": 1000}
    assert held(config, {"model.embed_tokens.weight": ("BF16", (1000, 256))}).total == 1024 * 256 * 2


@pytest.mark.parametrize("layers", [0, 8])
def test_nothing_raises_for_names_and_shapes_that_nobody_knows(layers: int) -> None:
    odd = {
        "": ("F32", ()),
        "layers.99.x": ("I8", (0,)),
        "lm_head.weight": ("U8", (0, 3)),
        "x.experts.": ("F4", (3,)),
        ".5.": ("BF16", (2,)),
    }
    assert held({**LLAMA, "num_hidden_layers": layers}, odd, tp=3, pp=2, ep=3).total >= 0
