# A small U-Net in bf16 on a GPU: five steps, in which its convolutions and products are autotuned,
# at two sizes and with channels that are no multiple of eight on the way. Losses fall.
#   sh spec/gpu/unet.sh [BUILD]
set -e
flare=${1:-build}/flare
$flare spec/support/unet.lua cuda 5 64 32
$flare spec/support/unet.lua cuda 5 128 64
$flare spec/support/unet.lua cuda 5 72 20
