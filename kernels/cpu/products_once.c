/* Products that are added with one rounding, where the processor can. */
#define PRODUCTS FL_CPU(products_once)
#include "products.h"
