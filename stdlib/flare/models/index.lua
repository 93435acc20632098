--- The names of flare.models and their files, in this folder. An architecture has the name that
-- config.json gives it.
return {
  Cache = "cache", Causal = "causal", Engine = "engine", Model = "model", Pages = "pages",
  Rope = "rope", choices = "evaluate", load = "load", perplexity = "evaluate",
  read_choices = "evaluate",

  AutoencoderKL = "vae",
  BertForMaskedLM = "bert", BertForSequenceClassification = "bert", BertModel = "bert",
  CLIPModel = "clip",
  ConvNextForImageClassification = "convnext", ConvNextModel = "convnext",
  DiTTransformer2DModel = "dit",
  GPT2LMHeadModel = "gpt2", GPT2Model = "gpt2",
  LlamaForCausalLM = "llama", LlamaModel = "llama",
  MistralForCausalLM = "mistral", MistralModel = "mistral",
  MixtralForCausalLM = "mixtral", MixtralModel = "mixtral",
  Qwen2ForCausalLM = "qwen2", Qwen2Model = "qwen2",
  Qwen2MoeForCausalLM = "qwen2_moe", Qwen2MoeModel = "qwen2_moe",
  Qwen3ForCausalLM = "qwen3", Qwen3Model = "qwen3",
  Qwen3MoeForCausalLM = "qwen3_moe", Qwen3MoeModel = "qwen3_moe",
  ResNetForImageClassification = "resnet", ResNetModel = "resnet",
  UNet2DConditionModel = "unet", UNet2DModel = "unet",
  ViTForImageClassification = "vit", ViTModel = "vit",
  WhisperForConditionalGeneration = "whisper",

  DDIMScheduler = "schedulers.ddim", DDPMScheduler = "schedulers.ddpm",
  EulerDiscreteScheduler = "schedulers.euler",
  FlowMatchEulerDiscreteScheduler = "schedulers.flow",

  lora = "lora",
}
