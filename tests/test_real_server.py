"""Notebook 25 finds the settings of a real server, llama.cpp's: `pip install xllamacpp` adds this test."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest

from tests.test_your_server import run_page

xllamacpp = pytest.importorskip("xllamacpp", reason="llama.cpp's server is not installed")


def cut_model(whole: Path, made: Path, n_layers: int) -> Path:
    """Write the first layers of a model in a GGUF file, so that steps are short; return the new file."""
    reader = gguf.GGUFReader(whole)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(made, architecture)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        value = n_layers if field.name == f"{architecture}.block_count" else field.contents()
        kind, items = field.types[0], field.types[-1]
        of = items if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, value, kind, sub_type=of)
    for tensor in reader.tensors:
        name = tensor.name.split(".")
        if name[0] != "blk" or int(name[1]) < n_layers:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return made


@pytest.mark.parametrize(("slots", "caching"), [(3, True), (6, False)])
def test_the_page_finds_what_the_flags_say(found: Path, tmp_path: Path, slots: int, caching: bool) -> None:
    settings = xllamacpp.CommonParams()
    settings.model.path = str(cut_model(found, tmp_path / "cut.gguf", n_layers=3))
    settings.n_gpu_layers, settings.cpuparams.n_threads, settings.port = 0, 1, 0
    settings.n_parallel, settings.n_ctx, settings.kv_unified = slots, 2048 * slots, False
    settings.cache_prompt = caching
    server = xllamacpp.Server(settings)
    names = run_page({"MOST": 512}, f"{server.listening_address}/v1", last="c25-slots")
    assert names["found"]["slots"] == str(slots)
    assert names["found"]["prefix cache"] == ("on" if caching else "off")
    assert names["found"]["block"] == ("1" if caching else None)
