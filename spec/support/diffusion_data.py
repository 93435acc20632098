"""Writes spec/data/diffusion.safetensors: what Hugging Face's diffusers computes with its schedulers.

    python spec/support/diffusion_data.py spec/data/diffusion.safetensors

Samples, outputs of models and noise are not stored: both sides compute them (`numbers` of models_data.py).
The file has, for each scheduler NAME:

  NAME.times     of all steps
  NAME.samples   after each step
  NAME.whole     the sample that the last step predicts, where diffusers tells it
  NAME.noisy     samples with the noise of the second and of the fourth time
  NAME.velocity  for the same times, where there is one
  NAME.first     the scale of the first noise, and of the first input of a model

and in the metadata of NAME, as JSON: the class, the configuration, the options of the steps. Made with torch
2.15.0 and diffusers 0.36.0.
"""
import json
import sys

import diffusers
import torch
from diffusers.schedulers import scheduling_ddim, scheduling_ddpm, scheduling_euler_discrete
from models_data import numbers
from safetensors.torch import save_file

SHAPE = (2, 4, 2, 2)
drawn = None  # the noise of the step that runs

for module in (scheduling_ddpm, scheduling_ddim, scheduling_euler_discrete):
    module.randn_tensor = lambda *_, **__: drawn
torch.randn_like = lambda x: drawn

DDPM, DDIM = "DDPMScheduler", "DDIMScheduler"
EULER, FLOW = "EulerDiscreteScheduler", "FlowMatchEulerDiscreteScheduler"
OPEN = dict(clip_sample=False)


def case(cls, steps=7, config=None, options=None, **more):
    """`steps` is a number, or the times at which a scheduler steps that has all times."""
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
    if isinstance(c["steps"], int):
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


def main(path):
    tensors = {}
    metadata = {"versions": f"torch {torch.__version__}, diffusers {diffusers.__version__}"}
    for name, c in SCHEDULERS.items():
        out = {}
        run(c, out)
        for key, value in out.items():
            tensors[f"{name}.{key}"] = value.detach().contiguous()
        metadata[name] = json.dumps(c)
        print(name, *(f"{k} {list(v.shape)}" for k, v in out.items()), flush=True)
    save_file(tensors, path, metadata)


if __name__ == "__main__":
    main(*sys.argv[1:])
