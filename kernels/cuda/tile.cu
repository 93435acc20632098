/* Tiles: the kernels are printed by tile_text.c, and include tile.cuh
 * themselves; nothing but the text in front of this is compiled. */
#include "tile.cuh"
