/* Products that are rounded before they are added. */
#if defined __clang__
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("fp-contract=off")
#endif
#define PRODUCTS FL_CPU(products_twice)
#include "products.h"
