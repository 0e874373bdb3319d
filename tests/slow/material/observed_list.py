"""The models of `observed_models`: each an expression of a public package, small, with random weights."""

from __future__ import annotations

from dataclasses import dataclass

from app.sources.spec import InputSpec, parse_input

# A file that makes the model, its inputs, and, for an import, the model with positional inputs alone.
MAKER = """
import torch
from torch import nn
{imports}

def make():
    torch.manual_seed(0)
    model = {call}
    return model{mode}


def inputs():
    from app.sources.examples import example
    from app.sources.spec import parse_input

    given = [parse_input(text) for text in {inputs!r}]
    args = [example(one) for one in given if not one.name]
    kwargs = {{one.name: example(one) for one in given if one.name}}
    {more}
    return tuple(args), kwargs
"""
POSITIONAL = """

class Positional(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = make()

    def forward(self, {names}):
        return {found}
"""


@dataclass(frozen=True)
class Public:
    """A model: the expression that makes it, of a package, what it is called with as `tapedeck draw --input` has it,
    and statements that add to `args` and `kwargs` what is no plain tensor. `tensors` is what a net around it returns of
    its inputs alone, where it is imported and takes more."""

    name: str
    package: str
    call: str
    inputs: str
    more: str = ""
    train: bool = False
    tensors: str = ""

    @property
    def specs(self) -> tuple[InputSpec, ...]:
        return tuple(map(parse_input, self.inputs.split()))

    @property
    def maker(self) -> str:
        imports = "".join(f"import {name}\n" for name in self.package.split())
        return MAKER.format(
            imports=imports,
            call=self.call,
            mode="" if self.train else ".eval()",
            inputs=self.inputs.split(),
            more=self.more or "pass",
        )

    @property
    def importable(self) -> tuple[str, str] | None:
        """The maker with the name of what makes a model of positional tensors alone; None if it takes other things."""
        if self.more and not self.tensors:
            return None
        named = [one.name for one in self.specs]
        if not any(named) and not self.tensors:
            return self.maker, "make()"
        names = [name or f"x{number}" for number, name in enumerate(named)]
        given = ", ".join(
            f"{name}={name}" if named[at] else name for at, name in enumerate(names)
        )
        found = self.tensors or f"self.model({given})"
        return self.maker + POSITIONAL.format(
            names=", ".join(names), found=found
        ), "Positional"


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


def _hf(
    kind: str,
    arguments: str,
    inputs: str = "input_ids=2x12:int64",
    config: str = "",
    said: str = "",
    train: bool = False,
    more: str = "",
    tensors: str = "",
) -> Public:
    for suffix in (
        "ForSequenceClassification",
        "ForConditionalGeneration",
        "ForCausalLM",
        "ForObjectDetection",
        "LMHeadModel",
        "ForMaskedLM",
        "ForCTC",
        "EncoderModel",
        "Model",
    ):
        if not config and kind.endswith(suffix):
            config = f"{kind.removesuffix(suffix)}Config"
    return Public(
        f"transformers {kind}{f' ({said})' if said else ''}",
        "transformers",
        f"transformers.{kind}(transformers.{config}({arguments}))",
        inputs,
        more,
        train,
        tensors,
    )


def _diffusers(kind: str, arguments: str, inputs: str) -> Public:
    return Public(
        f"diffusers {kind}", "diffusers", f"diffusers.{kind}({arguments})", inputs
    )


def _graph(kind: str, arguments: str, more: str = "") -> Public:
    return Public(
        f"torch_geometric {kind}",
        "torch_geometric torch_geometric.nn",
        f"torch_geometric.nn.{kind}({arguments})",
        "10x6 2x24:int64",
        more,
    )


def _segmentation(names: str, shape: str = "2x3x64x64", more: str = "") -> list[Public]:
    call = (
        "segmentation_models_pytorch.{}('resnet18', encoder_weights=None, classes=2{})"
    )
    return [
        Public(
            f"segmentation {name}",
            "segmentation_models_pytorch",
            call.format(name, more),
            shape,
        )
        for name in names.split()
    ]


def _detection(name: str, train: bool = False, said: str = "") -> Public:
    more = "args = [[torch.rand(3, 96, 96, generator=torch.Generator().manual_seed(1)) for _ in range(2)]]"
    if train:
        more += (
            "; args.append([{'boxes': torch.tensor([[8.0, 8.0, 60.0, 50.0]]), 'labels': torch.tensor([1])}"
            " for _ in range(2)])"
        )
    call = (
        f"torchvision.models.get_model({name!r}, weights=None, weights_backbone=None, num_classes=3, min_size=96, "
        "max_size=96)"
        if "ssd" not in name
        else f"torchvision.models.get_model({name!r}, weights=None, weights_backbone=None, num_classes=3)"
    )
    return Public(f"torchvision {name}{said}", "torchvision", call, "", more, train)


def _audio(
    kind: str, arguments: str, inputs: str, more: str = "", tensors: str = ""
) -> Public:
    call = f"torchaudio.models.{kind}({arguments})"
    return Public(
        f"torchaudio {kind}",
        "torchaudio torchaudio.models",
        call,
        inputs,
        more,
        tensors=tensors,
    )


TEXT = "hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48, vocab_size=40"
KEYS = f"{TEXT}, num_key_value_heads=1, pad_token_id=0"
EXPERTS = f"{KEYS}, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24"
PAIR = (
    "d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2, "
    "encoder_ffn_dim=48, decoder_ffn_dim=48, vocab_size=40, pad_token_id=0"
)
BOTH = "input_ids=2x12:int64 decoder_input_ids=2x7:int64"
PICTURE = (
    "hidden_size=32, num_hidden_layers=2, num_attention_heads=2, "
    "intermediate_size=48, image_size=32, patch_size=8"
)
TWO = (
    f"text_config=dict({TEXT}, max_position_embeddings=32, bos_token_id=1, eos_token_id=2), "
    f"vision_config=dict({PICTURE}), projection_dim=16"
)
WAVES = (
    f"{TEXT}, conv_dim=(16, 16), conv_kernel=(10, 3), conv_stride=(5, 2), num_feat_extract_layers=2, "
    "num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4"
)
# Tokens of a picture where they belong, and nowhere else; every second sequence is shorter.
PLACED = "torch.cat([input_ids[:, :4] % 3, torch.full_like(input_ids[:, 4:20], 3), input_ids[:, 20:] % 3], 1)"
LENGTHS = "12 - 3 * (torch.arange(len(x0)) % 2)"
BLOCKS = "block_out_channels=(32, 64), layers_per_block=1"

MODELS: list[Public] = [
    *_timm(
        "resnet18 efficientnet_b0 convnext_atto regnety_002 dla34 ghostnet_050 mobilenetv4_conv_small"
        " hrnet_w18_small fastvit_t8 edgenext_xx_small mobilevit_xxs poolformer_s12"
    ),
    *_timm(
        "vit_tiny_patch16_224 xcit_nano_12_p16_224", "1x3x112x112", ", img_size=112"
    ),
    *_timm(
        "swin_tiny_patch4_window7_224 mixer_s32_224 coat_lite_tiny tnt_s_patch16_224",
        "1x3x224x224",
    ),
    *_timm("levit_128s", "2x3x224x224"),
    _hf("BertModel", TEXT, "input_ids=2x12:int64 attention_mask=2x12:int64"),
    _hf(
        "RobertaForSequenceClassification",
        TEXT,
        "input_ids=2x12:int64 labels=2:int64",
        said="its loss",
    ),
    _hf(
        "DebertaV2Model",
        f"{TEXT}, relative_attention=True, pos_att_type=['p2c', 'c2p']",
    ),
    _hf("LongformerModel", f"{TEXT}, attention_window=8, pad_token_id=0"),
    _hf(
        "LlamaForCausalLM",
        KEYS,
        "input_ids=2x12:int64 labels=2x12:int64",
        said="cache, its loss",
    ),
    _hf("MistralForCausalLM", KEYS, said="cache"),
    _hf("Qwen3ForCausalLM", f"{KEYS}, head_dim=16", said="cache"),
    _hf("Gemma2ForCausalLM", f"{KEYS}, head_dim=16", said="cache"),
    _hf(
        "GPT2LMHeadModel",
        "n_embd=32, n_layer=2, n_head=2, vocab_size=40",
        said="training",
        train=True,
    ),
    _hf(
        "MambaForCausalLM",
        "hidden_size=32, num_hidden_layers=2, state_size=4, vocab_size=40",
        said="cache",
    ),
    _hf(
        "RwkvModel",
        "hidden_size=32, num_hidden_layers=2, vocab_size=40, attention_hidden_size=32, "
        "use_cache=False",
    ),
    _hf(
        "MixtralForCausalLM",
        f"{KEYS}, num_local_experts=4, num_experts_per_tok=2",
        said="experts",
    ),
    _hf(
        "Qwen2MoeForCausalLM",
        f"{EXPERTS}, shared_expert_intermediate_size=24",
        said="experts",
    ),
    _hf(
        "OlmoeForCausalLM",
        f"{KEYS}, num_experts=4, num_experts_per_tok=2",
        said="experts",
    ),
    _hf(
        "T5ForConditionalGeneration",
        "d_model=32, d_kv=16, d_ff=48, num_layers=2, num_heads=2, vocab_size=40",
        BOTH,
    ),
    _hf("BartModel", PAIR, BOTH),
    _hf("MarianModel", PAIR, BOTH),
    _hf("ViTModel", PICTURE, "pixel_values=2x3x32x32"),
    _hf(
        "SwinModel",
        "image_size=32, patch_size=2, embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=4",
        "pixel_values=2x3x32x32",
    ),
    _hf(
        "SegformerModel",
        "hidden_sizes=[8, 16, 32, 32], depths=[1, 1, 1, 1]",
        "pixel_values=2x3x64x64",
    ),
    _hf("VideoMAEModel", f"{PICTURE}, num_frames=4", "pixel_values=1x4x3x32x32"),
    _hf(
        "DetrForObjectDetection",
        f"{PAIR.replace('vocab_size=40, ', '')}, num_queries=5, use_timm_backbone=False, "
        "use_pretrained_backbone=False, backbone=None, backbone_config=transformers.ResNetConfig(embedding_size=8, "
        "hidden_sizes=[8, 16], depths=[1, 1], out_features=['stage2'])",
        "pixel_values=1x3x64x64",
        "DetrConfig",
    ),
    _hf("CLIPModel", TWO, "input_ids=2x12:int64 pixel_values=2x3x32x32"),
    _hf(
        "SiglipModel",
        TWO.replace(", projection_dim=16", ""),
        "input_ids=2x12:int64 pixel_values=2x3x32x32",
    ),
    _hf(
        "LlavaForConditionalGeneration",
        f"text_config=transformers.LlamaConfig({KEYS}), "
        f"vision_config=transformers.CLIPVisionConfig({PICTURE}), image_token_id=3, vision_feature_layer=-1",
        "input_ids=1x24:int64 pixel_values=1x3x32x32",
        "LlavaConfig",
        "picture in a text",
        more="kwargs['input_ids'][:, 4:20] = 3",
        tensors=f"self.model(input_ids={PLACED}, pixel_values=pixel_values)",
    ),
    _hf("Wav2Vec2ForCTC", WAVES, "input_values=2x800"),
    _hf(
        "WhisperForConditionalGeneration",
        f"{PAIR}, num_mel_bins=8, max_source_positions=20, decoder_start_token_id=1",
        "input_features=1x8x40 decoder_input_ids=1x7:int64",
    ),
    _hf(
        "ASTModel",
        "hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48, "
        "max_length=64, num_mel_bins=32",
        "input_values=2x64x32",
    ),
    _hf(
        "EncodecModel",
        "num_filters=4, hidden_size=8, codebook_dim=8, codebook_size=16, upsampling_ratios=[4, 2]",
        "input_values=1x1x640",
    ),
    _hf(
        "TimeSeriesTransformerModel",
        f"{PAIR.replace('vocab_size=40, pad_token_id=0', '')}prediction_length=4, "
        "context_length=8, lags_sequence=[1, 2], num_time_features=1",
        "past_values=2x10 past_time_features=2x10x1 past_observed_mask=2x10 future_values=2x4 "
        "future_time_features=2x4x1",
    ),
    _diffusers(
        "UNet2DModel",
        f"sample_size=16, {BLOCKS}, down_block_types=('DownBlock2D', 'AttnDownBlock2D'), "
        "up_block_types=('AttnUpBlock2D', 'UpBlock2D')",
        "1x3x16x16 1:int64",
    ),
    _diffusers(
        "UNet2DConditionModel",
        f"sample_size=16, {BLOCKS}, down_block_types=('CrossAttnDownBlock2D', "
        "'DownBlock2D'), up_block_types=('UpBlock2D', 'CrossAttnUpBlock2D'), cross_attention_dim=16, "
        "attention_head_dim=8",
        "1x4x16x16 1:int64 1x5x16",
    ),
    _diffusers(
        "AutoencoderKL",
        f"{BLOCKS}, down_block_types=('DownEncoderBlock2D',) * 2, "
        "up_block_types=('UpDecoderBlock2D',) * 2, norm_num_groups=8",
        "1x3x32x32",
    ),
    _diffusers(
        "DiTTransformer2DModel",
        "num_attention_heads=2, attention_head_dim=8, in_channels=4, num_layers=2, "
        "sample_size=8, num_embeds_ada_norm=10",
        "hidden_states=1x4x8x8 timestep=1:int64 class_labels=1:int64",
    ),
    _diffusers(
        "SD3Transformer2DModel",
        "sample_size=8, num_layers=2, attention_head_dim=8, num_attention_heads=2, "
        "joint_attention_dim=16, caption_projection_dim=16, pooled_projection_dim=12, in_channels=4, "
        "pos_embed_max_size=8",
        "hidden_states=1x4x8x8 encoder_hidden_states=1x5x16 pooled_projections=1x12 timestep=1:int64",
    ),
    _diffusers(
        "FluxTransformer2DModel",
        "num_layers=1, num_single_layers=1, attention_head_dim=16, "
        "num_attention_heads=2, in_channels=4, joint_attention_dim=16, pooled_projection_dim=12, "
        "axes_dims_rope=(4, 4, 8), guidance_embeds=False",
        "hidden_states=1x16x4 encoder_hidden_states=1x5x16 pooled_projections=1x12 timestep=1 img_ids=16x3 "
        "txt_ids=5x3",
    ),
    _graph("GCN", "6, 8, 2, 3"),
    _graph("GAT", "6, 8, 2, 3, heads=2"),
    _graph("GraphSAGE", "6, 8, 2, 3"),
    _graph("GIN", "6, 8, 2, 3"),
    _graph("GraphUNet", "6, 8, 3, 2"),
    _graph("EdgeCNN", "6, 8, 2, 3"),
    *_segmentation("Unet DeepLabV3Plus FPN"),
    *_segmentation("Segformer", "2x3x128x128"),
    Public(
        "torchvision deeplabv3_mobilenet_v3_large",
        "torchvision",
        "torchvision.models.get_model("
        "'deeplabv3_mobilenet_v3_large', weights=None, weights_backbone=None, num_classes=4, aux_loss=True)",
        "2x3x64x64",
    ),
    _detection("fcos_resnet50_fpn"),
    _detection("retinanet_resnet50_fpn", True, " (its losses)"),
    _detection("ssdlite320_mobilenet_v3_large", True, " (its losses)"),
    _hf(
        "YolosForObjectDetection",
        PICTURE.replace("image_size=32", "image_size=[32, 32], num_detection_tokens=5"),
        "pixel_values=1x3x32x32",
    ),
    _audio(
        "wav2vec2_model",
        "'group_norm', [(16, 10, 5), (16, 3, 2)], False, 32, 0.0, 16, 4, 2, 2, 0.0, 48, 0.0, 0.0, "
        "False, 0.0, 10",
        "1x800",
    ),
    _audio(
        "Conformer",
        "input_dim=16, num_heads=2, ffn_dim=32, num_layers=2, depthwise_conv_kernel_size=5",
        "2x12x16",
        "args.append(torch.tensor([12, 9]))",
        f"self.model(x0, {LENGTHS})",
    ),
    _audio(
        "Emformer",
        "16, 2, 32, 2, 4, right_context_length=1",
        "2x13x16",
        "args.append(torch.tensor([12, 9]))",
        f"self.model(x0, {LENGTHS})",
    ),
    _audio(
        "ConvTasNet",
        "num_sources=2, enc_kernel_size=16, enc_num_feats=16, msk_num_feats=8, "
        "msk_num_hidden_feats=16, msk_num_layers=2, msk_num_stacks=1",
        "1x1x256",
    ),
    _audio("DeepSpeech", "n_feature=16, n_hidden=24, n_class=10", "2x1x12x16"),
    _audio(
        "WaveRNN",
        "upsample_scales=[2, 2], n_classes=16, hop_length=4, n_res_block=1, n_rnn=16, n_fc=16, "
        "n_freq=10, n_hidden=8, n_output=8",
        "1x1x16 1x1x10x8",
    ),
    Public(
        "vit_pytorch SimpleViT",
        "vit_pytorch",
        "vit_pytorch.SimpleViT(image_size=32, patch_size=8, num_classes=5, "
        "dim=32, depth=2, heads=2, mlp_dim=48)",
        "2x3x32x32",
    ),
    Public(
        "monai SegResNet",
        "monai monai.networks.nets",
        "monai.networks.nets.SegResNet(spatial_dims=3, "
        "init_filters=8, in_channels=1, out_channels=2)",
        "1x1x16x16x16",
    ),
]
