"""Imports public models that nobody tuned the import for, and says of each whether the drawing's code is the same net.

`python scripts/import_public.py` writes docs/measured/import_public.md, a row after every model; stopped, it goes on
where it was. Names on the command line are made anew. The packages are a development check, no dependency: install them
with `pip install --no-deps` (no other torch is to come along) in an environment of its own: timm, vit-pytorch, einops,
segmentation-models-pytorch, transformers and what these ask for. A model comes from a file that imports its package, in
a process of its own, as a person's does; the comparison is that of `scripts/import_check.py`.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.features.importing import task, values
from app.project import file as project_file
from app.sources.spec import SourceSpec, parse_input
from app.util.torchvision_import import import_torchvision
from scripts.import_check import PREPARED, ROOT, Clean, Table, drawn_row
from tests.support.own_code import trust

FILE = ROOT / "docs" / "measured" / "import_public.md"
HEAD = """# Public models, imported

Made by `python scripts/import_public.py`: {passed} of {whole} models pass. The architectures of public packages and of
papers (`scripts/public_pictures.py`, `scripts/public_sequences.py`), small, with random weights. Each is imported from
a file that makes it, with the defaults of `tapedeck import`, and its export compared with the source model as
[torchvision's models](import_table.md) are; the columns are the same."""

MAKER = """
import sys
sys.path.insert(0, {scripts!r})
import torch
import {package}

def make():
    torch.manual_seed(0)
    return {call}

def inputs():
    made = torch.Generator().manual_seed(1)
    return tuple(torch.randn(shape, generator=made) if kind == "float32" else
                 torch.randint(0, 20, shape, generator=made) for shape, kind in {inputs!r})
"""


@dataclass(frozen=True)
class Public:
    """A model: the expression that makes it, of a package, and its inputs."""

    name: str
    package: str
    call: str
    inputs: str

    @property
    def maker(self) -> str:
        given = [parse_input(text) for text in self.inputs.split()]
        inputs = [(one.shape, one.dtype or "float32") for one in given]
        return MAKER.format(
            scripts=str(ROOT / "scripts"),
            package=self.package,
            call=self.call,
            inputs=inputs,
        )


def _timm(names: str, shape: str = "2x3x64x64", more: str = "") -> list[Public]:
    return [
        Public(
            f"timm {name}",
            "timm",
            f"timm.create_model({name!r}, num_classes=7{more})",
            shape,
        )
        for name in names.split()
    ]


def _smp(names: str) -> list[Public]:
    call = "segmentation_models_pytorch.{}('resnet18', encoder_weights=None, classes=2)"
    return [
        Public(
            f"smp {name}", "segmentation_models_pytorch", call.format(name), "2x3x64x64"
        )
        for name in names.split()
    ]


def _transformers(
    name: str, config: str, arguments: str, shape: str = "2x12:int64"
) -> Public:
    call = f"transformers.{name}(transformers.{config}({arguments}))"
    return Public(f"transformers {name}", "transformers", call, shape)


def _paper(module: str, rows: str) -> list[Public]:
    parts = (row.split(" | ") for row in rows.strip().splitlines())
    return [
        Public(f"paper {call.strip()}", module, f"{module}.{call.strip()}", shape)
        for call, shape in parts
    ]


SMALL = "hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48, vocab_size=40"
PICTURE = f"{SMALL.replace('vocab_size=40', 'image_size=32')}, patch_size=8"
MODELS: list[Public] = [
    *_timm(
        "resnet26d seresnext26t_32x4d ecaresnet26t res2net50_14w_8s resnest14d skresnet18 dla34 dpn48b "
        "hrnet_w18_small ese_vovnet19b_dw selecsls42b repvgg_a0 rexnet_100 ghostnetv2_100 mobilenetv4_conv_small "
        "mobileone_s0 nf_resnet26 lambda_resnet26t cspresnext50 regnetz_005 convnextv2_atto convmixer_768_32 "
        "poolformer_s12 starnet_s1 repvit_m0_9 efficientvit_b0 tinynet_e inception_next_atto mambaout_femto "
        "xception41"
    ),
    *_timm(
        "vit_tiny_patch16_224 beit_base_patch16_224 cait_xxs24_224 xcit_nano_12_p16_224 eva02_tiny_patch14_224 "
        "volo_d1_224",
        "1x3x112x112",
        ", img_size=112",
    ),
    *_timm("mixer_s32_224 resmlp_12_224 gmlp_ti16_224 sequencer2d_s", "1x3x224x224"),
    *_timm(
        "pvt_v2_b0 edgenext_xx_small mobilevit_xxs davit_tiny caformer_s18", "1x3x64x64"
    ),
    *_timm(
        "tnt_s_patch16_224 convit_tiny efficientformer_l1 coat_lite_tiny twins_svt_small swinv2_cr_tiny_ns_224 "
        "hiera_tiny_224 tiny_vit_5m_224",
        "1x3x224x224",
    ),
    *_timm("maxvit_rmlp_pico_rw_256", "1x3x256x256"),
    *_timm("levit_128s", "2x3x224x224"),
    Public(
        "smp PAN",
        "segmentation_models_pytorch",
        "segmentation_models_pytorch.PAN('resnet18', encoder_weights=None, classes=2)",
        "2x3x128x128",
    ),
    *_smp("Unet UnetPlusPlus FPN PSPNet DeepLabV3Plus Linknet MAnet"),
    _transformers("BertModel", "BertConfig", SMALL),
    _transformers(
        "DistilBertModel",
        "DistilBertConfig",
        "dim=32, n_layers=2, n_heads=2, hidden_dim=48, vocab_size=40",
    ),
    _transformers(
        "GPT2Model",
        "GPT2Config",
        "n_embd=32, n_layer=2, n_head=2, vocab_size=40, use_cache=False",
    ),
    _transformers("LlamaModel", "LlamaConfig", f"{SMALL}, use_cache=False"),
    _transformers("ElectraModel", "ElectraConfig", f"{SMALL}, embedding_size=16"),
    _transformers(
        "T5EncoderModel",
        "T5Config",
        "d_model=32, d_kv=16, d_ff=48, num_layers=2, num_heads=2, vocab_size=40",
    ),
    _transformers("ViTModel", "ViTConfig", PICTURE, "2x3x32x32"),
    _transformers("DeiTModel", "DeiTConfig", PICTURE, "2x3x32x32"),
    _transformers(
        "ConvNextModel",
        "ConvNextConfig",
        "hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 2, 1]",
        "2x3x64x64",
    ),
    _transformers(
        "SegformerModel",
        "SegformerConfig",
        "hidden_sizes=[8, 16, 32, 32], depths=[1, 1, 1, 1]",
        "2x3x64x64",
    ),
    Public(
        "vit_pytorch SimpleViT",
        "vit_pytorch",
        "vit_pytorch.SimpleViT(image_size=32, patch_size=8, num_classes=5, "
        "dim=32, depth=2, heads=2, mlp_dim=48)",
        "2x3x32x32",
    ),
    Public(
        "vit_pytorch ViT",
        "vit_pytorch",
        "vit_pytorch.ViT(image_size=32, patch_size=8, num_classes=5, dim=32, "
        "depth=2, heads=2, mlp_dim=48, dropout=0.1)",
        "2x3x32x32",
    ),
    *_paper(
        "public_sequences",
        """
        GPT() | 2x20:int64
        Llama() | 2x11:int64
        RelativeAttention() | 7x2x16
        TimeMix() | 2x6x12
        Mamba() | 2x7x8
        WaveNet() | 2x1x32
        TCN() | 2x2x20
        Seq2Seq() | 2x7:int64 2x5:int64
        SetTransformer() | 2x9x8
        GCN() | 10x6 10x10
        GAT() | 10x6 10x10
        DeepFM() | 6x5:int64
        MixtureOfExperts() | 2x5x8""",
    ),
    *_paper(
        "public_pictures",
        """
        UNet() | 2x1x45x52
        UNet(bilinear=False) | 2x1x40x40
        AttentionUNet() | 2x1x32x32
        ConvLSTM() | 2x4x2x8x8
        PointNet() | 3x3x20
        DCGAN() | 2x10x1x1
        VAE() | 3x1x8x8
        VQVAE() | 2x1x16x16
        CapsNet() | 2x1x15x15
        Siamese() | 2x1x8x8 2x1x8x8
        Mixer() | 2x3x16x16
        NeRF() | 5x3 5x3
        Siren() | 9x2
        NeuralODE() | 4x2
        HyperNetwork() | 2x3x8x8
        KAN() | 6x3
        FNO() | 2x16x2
        MADE() | 4x6
        YoloHead() | 2x3x16x16
        ESPCN() | 2x1x8x8""",
    ),
]


def imported(public: Public, file: Path) -> Path:
    """The project of a file's model, made in a child of this process; where it is. Raises ModelImportError."""
    left = file.with_suffix(".tape")
    child = os.fork()
    if not child:
        code = 1
        try:
            trust(f"{file}:make()")
            source = SourceSpec("file", str(file), "make", True)
            inputs = tuple(map(parse_input, public.inputs.split()))
            project_file.write(
                task.answer(values.ImportModel(source, {}, inputs), file.parent),
                left,
            )
            code = 0
        except Exception as error:  # its words are for the parent
            left.with_suffix(".why").write_text(f"{type(error).__name__}: {error}")
        os._exit(code)
    _, status = os.waitpid(child, 0)
    if status:
        why = left.with_suffix(".why")
        raise values.ModelImportError(
            why.read_text() if why.is_file() else f"the import ended with {status}"
        )
    return left


def checked(public: Public, clean: Clean) -> dict[str, Any]:
    """One row of the table."""
    shapes = public.inputs.replace("x", "×")
    row: dict[str, Any] = {
        "model": public.name,
        "input": shapes,
        "verdict": "fails",
        "why": "",
    }
    try:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "net.py"
            file.write_text(public.maker)
            began = time.perf_counter()
            left = imported(public, file)
            row["import s"] = f"{time.perf_counter() - began:.2f}"
            row["why"] = " ".join(values.remarks(project_file.read(left)))[:300]
            drawn_row(row, left, public.maker, clean)
    except Exception as error:  # the reason is a cell of the table
        row["why"] = f"{type(error).__name__}: {error}"[:300]
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help="these alone, and anew")
    parser.add_argument("--table", type=Path, default=FILE)
    options = parser.parse_args()
    table = Table(options.table, HEAD)
    order = [public.name for public in MODELS]
    wanted = [
        public
        for public in MODELS
        if (
            public.name in options.models
            if options.models
            else public.name not in table.rows
        )
    ]
    packages = sorted({public.package for public in wanted})
    missing = [
        name
        for name in packages
        if not name.startswith("public_") and importlib.util.find_spec(name) is None
    ]
    if missing:
        print(f"not installed, and left out: {', '.join(missing)}", file=sys.stderr)
    import torch

    torch.set_num_threads(1)
    import_torchvision()
    sys.path.insert(0, str(ROOT / "scripts"))
    first = "".join(f"import {name}\n" for name in packages if name not in missing)
    for name in packages:
        if name not in missing:
            importlib.import_module(name)
    clean = Clean(
        f"{PREPARED.format(root=str(ROOT))}\nsys.path.insert(0, {str(ROOT / 'scripts')!r})\n{first}"
    )
    for public in wanted:
        if public.package not in missing:
            table.put(checked(public, clean), order)
            print(table.told(public.name), flush=True)
    failed = [name for name, row in table.rows.items() if row["verdict"] != "passes"]
    print(
        f"{len(table.rows) - len(failed)} of {len(table.rows)} pass"
        + "".join(f", not {name}" for name in failed)
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
