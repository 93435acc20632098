"""Writes spec/data/diffusion.safetensors: what Hugging Face's diffusers computes.

    python spec/support/diffusion_data.py spec/data/diffusion.safetensors [FOLDER]

Samples, outputs of models, noise and weights are not stored: both sides compute them (`numbers` and `weight` of
models_data.py). The file has, for each model NAME, results in f32 and

  NAME.grads     of a weighted sum of the results, for each tensor in the files: the sum of squares, and the sum of
                 products with numbers("grad." + name)

for each scheduler NAME:

  NAME.times     of all steps
  NAME.samples   after each step
  NAME.whole     the sample that the last step predicts, where diffusers tells it
  NAME.noisy     samples with the noise of the second and of the fourth time
  NAME.velocity  for the same times, where there is one
  NAME.first     the scale of the first noise, and of the first input of a model

and in the metadata of NAME, as JSON: of a scheduler the class, the configuration and the options of the steps; of
a model the configuration, [name, shape] of each tensor in the files that diffusers writes, and the inputs. With FOLDER, each model's folder is kept there, for
spec/long/diffusion.lua. Made with torch 2.15.0 and diffusers 0.36.0.
"""
import json
import os
import shutil
import sys
import tempfile

import diffusers
import torch
from diffusers.schedulers import scheduling_ddim, scheduling_ddpm, scheduling_euler_discrete
from models_data import numbers, weight
from safetensors.torch import load_file, save_file

SHAPE = (2, 4, 2, 2)
drawn = None  # the noise of the step that runs

for module in (scheduling_ddpm, scheduling_ddim, scheduling_euler_discrete):
    module.randn_tensor = lambda *_, **__: drawn
torch.randn_like = lambda x: drawn

DDPM, DDIM = "DDPMScheduler", "DDIMScheduler"
EULER, FLOW = "EulerDiscreteScheduler", "FlowMatchEulerDiscreteScheduler"
OPEN = dict(clip_sample=False)


def case(cls, steps=7, config=None, options=None, **more):
    """`steps` is a number, or the times at which a scheduler steps that has all times; `given` are times in place of
    a number of steps."""
    return dict(cls=cls, steps=steps, config=config or {}, options=options or {}, **more)


SCHEDULERS = {
    "ddpm": case(DDPM),
    "ddpm_all": case(DDPM, [999, 700, 100, 20, 3, 2, 1, 0], OPEN),
    "ddpm_scaled": case(DDPM, 50, dict(beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012,
                                       clip_sample_range=1.5, steps_offset=1)),
    "ddpm_cosine": case(DDPM, 9, dict(beta_schedule="squaredcos_cap_v2", prediction_type="v_prediction",
                                      variance_type="fixed_small_log", timestep_spacing="trailing")),
    "ddpm_sigmoid": case(DDPM, 6, dict(OPEN, beta_schedule="sigmoid", prediction_type="sample",
                                       variance_type="fixed_large", timestep_spacing="linspace")),
    "ddpm_learned": case(DDPM, 7, dict(variance_type="learned_range", num_train_timesteps=100)),
    "ddpm_threshold": case(DDPM, 7, dict(thresholding=True, dynamic_thresholding_ratio=0.9, sample_max_value=1.5)),
    "ddpm_given": case(DDPM, 4, dict(trained_betas=[0.1, 0.2, 0.3, 0.4, 0.5], num_train_timesteps=5)),
    "ddim": case(DDIM),
    "ddim_all": case(DDIM, 200, dict(OPEN, set_alpha_to_one=False, steps_offset=1)),
    "ddim_noise": case(DDIM, 7, dict(prediction_type="v_prediction", timestep_spacing="trailing",
                                     rescale_betas_zero_snr=True), dict(eta=0.5)),
    "ddim_clipped": case(DDIM, 7, dict(prediction_type="sample", timestep_spacing="linspace"),
                         dict(use_clipped_model_output=True)),
    "euler": case(EULER),
    "euler_leading": case(EULER, 7, dict(beta_schedule="scaled_linear", timestep_spacing="leading", steps_offset=1)),
    "euler_velocity": case(EULER, 7, dict(prediction_type="v_prediction", timestep_spacing="trailing",
                                          rescale_betas_zero_snr=True)),
    "euler_karras": case(EULER, 12, dict(use_karras_sigmas=True, beta_schedule="scaled_linear")),
    "euler_exponential": case(EULER, 7, dict(use_exponential_sigmas=True, final_sigmas_type="sigma_min")),
    "euler_logarithmic": case(EULER, 7, dict(interpolation_type="log_linear", prediction_type="sample")),
    "euler_continuous": case(EULER, 7, dict(timestep_type="continuous", prediction_type="v_prediction",
                                            use_karras_sigmas=True)),
    "euler_churn": case(EULER, 7, {}, dict(s_churn=3.0, s_tmin=0.1, s_tmax=100.0, s_noise=1.003)),
    "euler_given": case(EULER, 4, dict(prediction_type="v_prediction"), given=[990.5, 700, 301.25, 0]),
    "ddpm_chosen": case(DDPM, 4, OPEN, given=[990, 700, 301, 5]),
    "flow": case(FLOW),
    "flow_shift": case(FLOW, 28, dict(shift=3.0)),
    "flow_dynamic": case(FLOW, 7, dict(use_dynamic_shifting=True, shift_terminal=0.02), mu=0.8),
    "flow_linear": case(FLOW, 7, dict(use_dynamic_shifting=True, time_shift_type="linear"), mu=1.5),
    "flow_karras": case(FLOW, 7, dict(use_karras_sigmas=True, shift=2.0)),
    "flow_inverted": case(FLOW, 5, dict(invert_sigmas=True)),
    "flow_stochastic": case(FLOW, 5, dict(stochastic_sampling=True)),
}


def run(c, out):
    global drawn
    scheduler = getattr(diffusers, c["cls"])(**c["config"])
    if "given" in c:
        scheduler.set_timesteps(timesteps=c["given"])
        times = scheduler.timesteps
    elif isinstance(c["steps"], int):
        scheduler.set_timesteps(c["steps"], **({"mu": c["mu"]} if "mu" in c else {}))
        times = scheduler.timesteps
    else:
        times = torch.tensor(c["steps"])
    out["times"] = scheduler.timesteps.float()
    x, noise = numbers("x", SHAPE) * 4, numbers("noise", SHAPE) * 4
    some = times[[1, 3]]
    add = getattr(scheduler, "add_noise", None) or scheduler.scale_noise
    out["noisy"] = add(x, some, noise) if c["cls"] == FLOW else add(x, noise, some)
    if c["cls"] in (DDPM, DDIM):
        out["velocity"] = scheduler.get_velocity(x, noise, some)
    first = torch.as_tensor(getattr(scheduler, "init_noise_sigma", 1.0)).float()
    scaled = scheduler.scale_model_input(x, times[0]) if c["cls"] != FLOW else x
    out["first"] = torch.stack([first, scaled.abs().max() / x.abs().max()])
    samples = []
    learned = c["config"].get("variance_type", "").startswith("learned")
    for k, t in enumerate(times):
        drawn = numbers(f"noise.{k}", SHAPE) * 4
        output = numbers(f"output.{k}", (2, 8, 2, 2) if learned else SHAPE) * 4
        if c["cls"] in (EULER,):
            scheduler.scale_model_input(x, t)
        result = scheduler.step(output, t, x, **c["options"])
        x = result.prev_sample
        samples.append(x)
        if "pred_original_sample" in result:
            out["whole"] = result.pred_original_sample
    out["samples"] = torch.stack(samples[:: len(samples) // 8 + 1] + samples[-1:])


SMALL = dict(block_out_channels=[8, 16], norm_num_groups=4, attention_head_dim=4, layers_per_block=1)
DOWN, UP = ["DownBlock2D", "AttnDownBlock2D"], ["AttnUpBlock2D", "UpBlock2D"]
CROSS_DOWN = ["CrossAttnDownBlock2D", "DownBlock2D"]
CROSS_UP = ["UpBlock2D", "CrossAttnUpBlock2D"]
VAE = dict(down_block_types=["DownEncoderBlock2D"] * 2, up_block_types=["UpDecoderBlock2D"] * 2,
           block_out_channels=[8, 16], norm_num_groups=4)
DIT = dict(num_attention_heads=2, attention_head_dim=12, num_layers=2, sample_size=8, num_embeds_ada_norm=10)


def unet(config, sample=(2, 3, 8, 8), cls="UNet2DModel", **inputs):
    return cls, dict(SMALL, **config), dict(sample=sample, times=[7, 951], **inputs)


def text(config, sample=(2, 4, 8, 8), **inputs):
    return unet(dict(dict(down_block_types=CROSS_DOWN, up_block_types=CROSS_UP, cross_attention_dim=12), **config),
                sample, "UNet2DConditionModel", context=(2, 5, 12), **inputs)


MODELS = {
    "unet": unet(dict(down_block_types=DOWN, up_block_types=UP, layers_per_block=2, attention_head_dim=None)),
    "unet_shift": unet(dict(down_block_types=["ResnetDownsampleBlock2D", "AttnDownBlock2D"],
                            up_block_types=["AttnUpBlock2D", "ResnetUpsampleBlock2D"], freq_shift=1,
                            flip_sin_to_cos=False, resnet_time_scale_shift="scale_shift", num_class_embeds=5,
                            mid_block_scale_factor=1.5), labels=[4, 0]),
    "unet_fourier": unet(dict(down_block_types=["AttnDownBlock2D", "DownBlock2D"], center_input_sample=True,
                              up_block_types=["UpBlock2D", "AttnUpBlock2D"], time_embedding_type="fourier",
                              downsample_type="resnet", upsample_type="resnet", add_attention=False,
                              class_embed_type="timestep", time_embedding_dim=24, downsample_padding=0),
                         labels=[3, 600]),
    "unet_learned": unet(dict(down_block_types=["UNetResDownBlock2D", "UNetResAttnDownBlock2D"], in_channels=1,
                              up_block_types=["UNetResAttnUpBlock2D", "UNetResUpBlock2D"], out_channels=2,
                              mid_block_type=None, time_embedding_type="learned", num_train_timesteps=1000,
                              act_fn="mish", norm_eps=1e-3), (2, 1, 8, 4)),
    "unet_text": text({}, (2, 4, 10, 7), mask=[5, 3]),
    "unet_text_linear": text(dict(use_linear_projection=True, attention_head_dim=[2, 4], addition_embed_type="text_time",
                                  transformer_layers_per_block=[1, 2], addition_time_embed_dim=6,
                                  projection_class_embeddings_input_dim=46, layers_per_block=[1, 2],
                                  only_cross_attention=[False, True], time_cond_proj_dim=9, encoder_hid_dim=12,
                                  encoder_hid_dim_type="text_proj", conv_in_kernel=1, timestep_post_act="silu",
                                  down_block_types=["CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
                                  up_block_types=["CrossAttnUpBlock2D", "CrossAttnUpBlock2D"]),
                             pooled=(2, 10), sizes=(2, 6), guidance=(2, 9)),
    "unet_text_classes": text(dict(down_block_types=["CrossAttnDownBlock2D", "AttnDownBlock2D"], num_class_embeds=3,
                                   up_block_types=["AttnUpBlock2D", "CrossAttnUpBlock2D"],
                                   class_embeddings_concat=True, mid_block_type="UNetMidBlock2D",
                                   time_embedding_act_fn="silu"), labels=[2, 0]),
    "vae": ("AutoencoderKL", dict(VAE), dict(sample=(2, 3, 8, 8))),
    "vae_plain": ("AutoencoderKL", dict(VAE, use_quant_conv=False, use_post_quant_conv=False, latent_channels=2,
                                        mid_block_add_attention=False, in_channels=1, out_channels=1,
                                        layers_per_block=2, shift_factor=0.1), dict(sample=(1, 1, 12, 8))),
    "dit": ("DiTTransformer2DModel", DIT, dict(sample=(2, 4, 8, 8), times=[7, 951], labels=[9, 10])),
    "dit_large": ("DiTTransformer2DModel", dict(DIT, out_channels=6, patch_size=1, activation_fn="geglu",
                                                attention_bias=False),
                  dict(sample=(2, 4, 6, 6), times=[500, 0], labels=[0, 3])),
}


def make(cls, config, folder):
    """A model of diffusers in a folder, with known weights; the names and shapes of these."""
    cls = getattr(diffusers, cls)
    cls(**config).save_pretrained(folder)
    path = os.path.join(folder, "diffusion_pytorch_model.safetensors")
    tensors = load_file(path)
    entries = [[name, list(tensors[name].shape)] for name in sorted(tensors)]
    save_file({name: weight(name, shape) for name, shape in entries}, path, {"format": "pt"})
    return cls.from_pretrained(folder).eval(), entries


def gradients(model, entries, loss):
    if not entries:
        return torch.zeros(0)
    loss.backward()
    sums, parameters = [], dict(model.named_parameters())
    for name, _ in entries:
        g = parameters[name].grad
        g = torch.zeros(1) if g is None else g.double()
        sums.append([(g * g).sum().item(), (g * numbers("grad." + name, g.shape)).sum().item()])
    return torch.tensor(sums, dtype=torch.float64).float()


def compute(model, entries, inputs, out):
    """Results and, of a model with entries, sums of gradients."""
    def given(name):
        return (numbers(name, inputs[name]) * 4).to(model.dtype) if name in inputs else None

    x = given("sample")

    if "times" not in inputs:
        moments = model.encode(x).latent_dist
        out["mean"], out["log_var"] = moments.mean, moments.logvar
        y = out["decoded"] = model.decode(moments.mean).sample
        y = y.sum() * 0.1 + (moments.logvar * numbers("log_var", moments.logvar.shape)).sum()
        out["grads"] = gradients(model, entries, y)
        return
    more = {}
    if "labels" in inputs:
        more["class_labels"] = torch.tensor(inputs["labels"])
    if "context" in inputs:
        more["encoder_hidden_states"] = given("context")
        more["timestep_cond"] = given("guidance")
    if "mask" in inputs:
        more["encoder_attention_mask"] = torch.arange(5)[None] < torch.tensor(inputs["mask"])[:, None]
    if "pooled" in inputs:
        sizes = torch.arange(12.0).reshape(2, 6) * 100
        more["added_cond_kwargs"] = dict(text_embeds=given("pooled"), time_ids=sizes)
    y = out["predicted"] = model(x, timestep=torch.tensor(inputs["times"]), **more).sample
    out["grads"] = gradients(model, entries, (y * numbers("target", y.shape)).sum())


def main(path, keep=None):
    tensors = {}
    metadata = {"versions": f"torch {torch.__version__}, diffusers {diffusers.__version__}"}
    for name, c in SCHEDULERS.items():
        out = {}
        run(c, out)
        for key, value in out.items():
            tensors[f"{name}.{key}"] = value.detach().contiguous()
        metadata[name] = json.dumps(c)
        print(name, *(f"{k} {list(v.shape)}" for k, v in out.items()), flush=True)
    for name, (cls, config, inputs) in MODELS.items():
        folder = os.path.join(keep, name) if keep else tempfile.mkdtemp()
        model, entries = make(cls, config, folder)
        out = {}
        compute(model, entries, inputs, out)
        for key, value in out.items():
            tensors[f"{name}.{key}"] = value.detach().contiguous()
        with open(os.path.join(folder, "config.json")) as f:
            metadata[name] = json.dumps({"config": json.load(f), "tensors": entries, "inputs": inputs})
        if not keep:
            shutil.rmtree(folder)
        print(name, *(f"{k} {list(v.shape)}" for k, v in out.items()), flush=True)
    save_file(tensors, path, metadata)


if __name__ == "__main__":
    main(*sys.argv[1:])
