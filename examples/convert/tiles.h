/* tiles.h - the tiles of TL1 and TL2: one for all shapes, or one for each, as in bitnet.cpp's
   kernel_config.ini:

       [Kernels_0]
       m = 14336       rows
       k = 4096        weights of a row
       bm = 256        BM, rows of a tile
       bk = 128        BK, columns of a tile
       bmm = 64        bm, rows of a group */
#ifndef CONVERT_TILES_H
#define CONVERT_TILES_H

#include "../../bitnet.h"

enum { TILES_MAX = 64 };

typedef struct tile_set {
    bitnet_tile all;                   /* of other shapes; 0: the published ones */
    bitnet_shape_tile shapes[TILES_MAX];
    int n_shapes;
} tile_set;

/* Reads "BM,BK,bm" or "BM,BK", or else the file of that name. err says what is wrong, and where. */
bitnet_result tiles_read(tile_set *out, const char *text, bitnet_error *err);
/* The tile of a shape. */
bitnet_tile tiles_find(const tile_set *set, int32_t rows, int32_t n);

#endif
