/* Convolutions by cuDNN where it is. */
#include "convolve.h"

fl_status flc_convolve(const fl_launch *l, const flc_conv *c) {
  return flc_conv_own(l, c);
}
