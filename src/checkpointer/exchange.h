/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that give each other what they have read: each reads a part of what all want and gets the
 * rest out of the others' memory, so that storage gives each byte once.
 */
#ifndef STI_CHECKPOINTER_EXCHANGE_H
#define STI_CHECKPOINTER_EXCHANGE_H

#include <stdbool.h>
#include <stdint.h>

#include <stoker/types.h>

#include "engine/engine.h"

#define STI_EXCHANGE_PIECE_BYTES (UINT64_C(8) << 20)

struct sti_exchange;

/* Some bytes that all ranks want at the same place of their lists; owner reads it. The memory of
 * this rank's own pieces has them already. */
struct sti_piece {
    char *memory;
    uint64_t n_bytes;
    uint32_t owner;
    uint32_t crc;  /* CRC-32C: of own ones given, of others what their owner says */
    bool is_here;  /* own: it can be given away; others', afterwards: it has come */
    bool is_asked; /* the exchange's */
};

/* timeout_ns: so long others may take to read their pieces. All ranks make one each, in the same
 * order as everything else that ranks open. Errors: -ENOMEM, -E2BIG, -EAGAIN. ret_exchange:
 * returns owned. Any thread but the loop's. */
int
sti_exchange_new(struct sti_exchange **ret_exchange, struct sti_engine *engine,
                 uint64_t timeout_ns);

/* Waits until nobody reads from this rank's memory. NULL is allowed. */
void
sti_exchange_free(struct sti_exchange *exchange);

/*
 * All ranks agree that they are about to read the same: what identifies it. code: why this rank
 * cannot, which the others are told. Blocks until all have come. Errors: code, STK_E_MISMATCH (err
 * names a rank that reads something else), -ECANCELED another rank cannot, -ETIMEDOUT one has
 * not come.
 */
int
sti_exchange_agree(struct sti_exchange *exchange, uint64_t what, int code, stk_error *err);

/*
 * Gives own pieces away and gets the others'; after sti_exchange_agree(), all ranks with pieces
 * of the same sizes and owners, one thread at a time. Blocks until each has come or cannot; pieces
 * that have not come (is_here) are the caller's to read. Never fails otherwise.
 */
void
sti_exchange_run(struct sti_exchange *exchange, struct sti_piece *pieces, uint32_t n);

/* Ends it: waits until all ranks are done, as long as that may take, and until nobody reads from
 * the pieces' memory. */
void
sti_exchange_end(struct sti_exchange *exchange);

#endif
