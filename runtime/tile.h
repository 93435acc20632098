/* What a fused kernel of a compiled function is to a backend: a loop nest over
 * fixed sizes, whose body is a program (program.h). Its kernel is called
 * "tile"; the launch has the fl_tile.
 *
 * The nest runs over `shape`. The last n_inner dims are those that reductions
 * reduce; all the others together number the rows. An input of the body is a
 * leaf: an element of memory, a coordinate, or a reduction of another value of
 * the same body. A value varies with the inner dims if one of the leaves below
 * it does; otherwise there is one for each row.
 *
 * Reductions order the body in phases: a reduction belongs to the phase after
 * that of its source, any other value to the latest phase of what it is made
 * of. All elements of a row are reduced before its next phase. A backend keeps
 * values from one phase to the next, or computes them again from memory.
 *
 * An element of memory that a store writes may also be loaded, through an equal
 * form: every load comes before the store. No other load reads what any store
 * writes, so a backend may go through rows and elements in any order. Sums of
 * F32 are accumulated at least in F32, in several partial sums. The mean and
 * the deviation of one source are found together, in one pass over it, from
 * those of parts, and lose no digits where the mean is far from 0.
 *
 * A form may also go along positions: coordinates that a value of the body
 * gives, as index tensors have them. Position k counts as dim n_dims + k of the
 * forms. A bad position is reported as the kernel of its row would, and reads
 * and writes nothing that matters. What is written through positions is added
 * to what lies there, in any order.
 *
 * A sum store sums over the dims that its form leaves out, in the same order
 * every time: a column sum beside rows. Of the inner dims it leaves out all or
 * none, and all sum stores of a tile leave out the same others. Its value is
 * F32 or F64 and is summed at least in that, once for each element of the nest
 * or, of a value that does not vary with the inner dims, once for each row. */
#ifndef FL_TILE_H
#define FL_TILE_H

#include "backend.h"
#include "program.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FL_TILE_DIMS      12
#define FL_TILE_LEAVES    64
#define FL_TILE_OPERANDS  64 /* inputs and outputs of the launch together */
#define FL_TILE_STORES    32
#define FL_TILE_OUT       96 /* results of the body */
#define FL_TILE_POSITIONS 4

/* offset + sum of coef[i] * coordinate i; positions come after the dims. */
typedef struct fl_form {
  int64_t offset;
  int64_t coef[FL_TILE_DIMS];
} fl_form;

/* Counted from `base` on; those below 0 from the end, if `from_end`. */
typedef struct fl_position {
  int64_t bound;  /* how many there are */
  int64_t skip;   /* counted from 0: nothing is written there; -1 */
  const char *op; /* whose it is, and which launch of the caller's */
  uint32_t entry;
  int32_t base;
  int16_t value; /* an I64 result of the body */
  bool from_end;
} fl_position;

typedef enum fl_leaf_kind {
  FL_LEAF_LOAD,  /* element `at` of operand in[operand], a number: its value */
  FL_LEAF_COORD, /* `at` itself, I64 */
  FL_LEAF_BITS,  /* the 16 random bits of element `at` (math/philox.h), F32 */
  FL_LEAF_REDUCE /* `source` reduced by `reduction` */
} fl_leaf_kind;

typedef struct fl_leaf {
  uint8_t kind;
  uint8_t reduction; /* fl_reduction */
  int16_t operand;
  int16_t source; /* REDUCE: a result of the body; BITS: that with the seed,
                     I64; else -1 */
  int16_t mask;   /* LOAD: a BOOL result of the body, computed by coordinates
                     alone; where it is false nothing is read, and the value is
                     0. -1: always read. BITS: the result with the offset */
  fl_form at;     /* elements of the operand's dtype, from its view's data */
} fl_leaf;

typedef enum fl_storing {
  FL_STORE_SET,
  FL_STORE_ADD,     /* it is added; `at` goes along a position */
  FL_STORE_SUM,     /* it is summed over dims that `at` leaves out */
  FL_STORE_SUM_ROWS /* it is summed over such rows, once for each */
} fl_storing;

/* Element `at` of operand out[operand] becomes result `value` of the body. If
 * neither varies with the inner dims, it is stored once a row. */
typedef struct fl_store {
  int16_t operand, value;
  fl_form at;
  int32_t add;   /* fl_storing */
  int32_t round; /* SUM: the sum is rounded to this dtype first, if it is
                    F16 or BF16 */
} fl_store;
static inline bool fl_store_sums(const fl_store *x) {
  return x->add >= FL_STORE_SUM;
}

/* Whose block: the host's kernel's, also of devices that it stands for, and
 * that of a device with kernels of its own. */
enum { FL_TILE_HOST, FL_TILE_DEVICE, FL_TILE_PLANS };

/* What a kernel keeps with a tile begins with this. */
typedef struct fl_tile_plan {
  void (*close)(
      struct fl_tile_plan *plan); /* NULL: it is one block of malloc */
} fl_tile_plan;

struct fl_tile {
  uint64_t hash;             /* of all of it, the operands' dtypes included */
  const fl_program *body;    /* n_in leaves; `out`: the values that leaves and
                                stores refer to */
  int n_dims, n_inner;       /* n_inner 0: no reductions */
  int n_stores, n_in, n_out; /* n_in, n_out: operands of the launch */
  int64_t shape[FL_TILE_DIMS];
  int n_positions;
  bool exact; /* elements have the bits that the rows' kernels give */
  const fl_leaf *leaves;
  const fl_store *stores;
  const fl_position *positions;
  /* The kernels' own, FL_TILE_PLANS of them, NULL at first: what a kernel has
   * found out about the tile, closed with the tile. Several threads may launch
   * it. */
  void **plan;
};

/* A fault of position k is reported with this number: the launch's comes after
 * those of its positions. */
static inline uint64_t fl_position_seq(const fl_launch *l, int k) {
  return l->seq - (uint64_t)l->tile->n_positions + (uint64_t)k;
}

/* After a failure of this thread: it is of the launch with this number. */
FL_API void fli_fail_of(uint64_t seq);
/* Whose it is, if launch `seq` has failed. */
FL_API uint64_t fli_failed_of(uint64_t seq);

/* What backends ask about the values of a tile's body, by number. */
typedef struct fl_tile_facts {
  int phases;                        /* one more than the last */
  uint8_t phase[FL_PROGRAM_VALUES];  /* in which it is known */
  uint8_t inner[FL_PROGRAM_VALUES];  /* 1: varies with the inner dims */
  uint8_t single[FL_PROGRAM_VALUES]; /* 1: one for the whole nest */
} fl_tile_facts;
FL_API void fl_tile_find(const fl_tile *t, fl_tile_facts *facts);

/* Instructions [begin, begin + n) of a program as C, as fl_program_source
 * writes them; constants are not among them. */
FL_API size_t fl_program_piece(const fl_program *p, int begin, int n,
                               char *text, size_t room);

#ifdef __cplusplus
}
#endif
#endif
