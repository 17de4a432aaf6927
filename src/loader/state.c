/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The saved position. 72 bytes, little-endian:
 *
 *      0   8  "STKLOADR"
 *      8   4  format version, 1
 *     12   4  drop_last, 0 or 1
 *     16   8  fingerprint of the data set
 *     24   8  fingerprint of the order
 *     32   8  samples of the data set
 *     40   8  epoch
 *     48   8  batches of the epoch before the next one
 *     56   8  world x batch size
 *     64   4  0
 *     68   4  CRC-32C of the 68 bytes before
 *
 * Also in docs/format/loader-state.md.
 */
#include "loader/state.h"

#include <endian.h>
#include <inttypes.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"

#define VERSION 1u

static const char magic[8] = {'S', 'T', 'K', 'L', 'O', 'A', 'D', 'R'};

static void
put64(char *bytes, size_t at, uint64_t value)
{
    value = htole64(value);
    memcpy(bytes + at, &value, sizeof(value));
}

static void
put32(char *bytes, size_t at, uint32_t value)
{
    value = htole32(value);
    memcpy(bytes + at, &value, sizeof(value));
}

static uint64_t
get64(const char *bytes, size_t at)
{
    uint64_t value;

    memcpy(&value, bytes + at, sizeof(value));
    return le64toh(value);
}

static uint32_t
get32(const char *bytes, size_t at)
{
    uint32_t value;

    memcpy(&value, bytes + at, sizeof(value));
    return le32toh(value);
}

void
sti_loader_state_encode(const struct sti_loader_state *state, void *ret_bytes)
{
    char *bytes = ret_bytes;

    memcpy(bytes, magic, sizeof(magic));
    put32(bytes, 8, VERSION);
    put32(bytes, 12, state->drop_last);
    put64(bytes, 16, state->dataset_fingerprint);
    put64(bytes, 24, state->order_fingerprint);
    put64(bytes, 32, state->n);
    put64(bytes, 40, state->epoch);
    put64(bytes, 48, state->epoch_step);
    put64(bytes, 56, state->global_batch);
    put32(bytes, 64, 0);
    put32(bytes, 68, sti_crc32c(0, bytes, 68));
}

int
sti_loader_state_decode(struct sti_loader_state *ret_state, const void *saved, size_t n_bytes,
                        stk_error *err)
{
    const char *bytes = saved;

    if (n_bytes < 12 || memcmp(bytes, magic, sizeof(magic)) != 0)
        return sti_error_set(err, STK_E_CORRUPT, "this is not the state of a loader");
    if (get32(bytes, 8) != VERSION)
        return sti_error_set(err, STK_E_VERSION,
                             "the state is of format version %" PRIu32 ", this library reads %u",
                             get32(bytes, 8), VERSION);
    if (n_bytes < STI_LOADER_STATE_BYTES)
        return sti_error_set(err, STK_E_CORRUPT, "the state is cut off at %zu of %d bytes", n_bytes,
                             STI_LOADER_STATE_BYTES);
    if (get32(bytes, 68) != sti_crc32c(0, bytes, 68))
        return sti_error_set(err, STK_E_CORRUPT, "the state's checksum does not match");
    *ret_state = (struct sti_loader_state){
        .drop_last = get32(bytes, 12),
        .dataset_fingerprint = get64(bytes, 16),
        .order_fingerprint = get64(bytes, 24),
        .n = get64(bytes, 32),
        .epoch = get64(bytes, 40),
        .epoch_step = get64(bytes, 48),
        .global_batch = get64(bytes, 56),
    };
    return 0;
}
