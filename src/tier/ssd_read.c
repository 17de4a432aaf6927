/* SPDX-License-Identifier: Apache-2.0 */
/* Reading from the SSD tier: where a sample is, the read that covers it, and whether what
 * came is it. A sample whose segment is still in memory is taken from there. */
#include <errno.h>

#include "base/crc32c.h"
#include "tier/ssd_internal.h"

bool
sti_ssd_has(const struct sti_ssd *ssd, uint64_t sample)
{
    if (!ssd)
        return false;
    uint64_t place = ssd->places[sample];
    return place >> STI_PLACE_SHIFT != 0 && !ssd->parts[sti_place_dir(place)].is_dropped;
}

bool
sti_ssd_has_own(const struct sti_ssd *ssd, uint64_t sample)
{
    return sti_ssd_has(ssd, sample) && sti_place_dir(ssd->places[sample]) < ssd->opts.n_parts;
}

bool
sti_ssd_was_warm(const struct sti_ssd *ssd, uint64_t sample)
{
    return ssd && (ssd->places[sample] & STI_PLACE_WARM) != 0;
}

bool
sti_ssd_find(const struct sti_ssd *ssd, uint64_t sample, struct sti_ssd_place *ret_place)
{
    if (!sti_ssd_has(ssd, sample))
        return false;
    uint64_t place = ssd->places[sample];
    *ret_place =
        (struct sti_ssd_place){.offset = sti_place_offset(place), .dir = sti_place_dir(place)};
    for (uint32_t at = 0; at < ssd->n_segments; at++) {
        const struct sti_segment *segment = &ssd->segments[at];

        if (segment->state != STI_SEGMENT_FREE && segment->dir == ret_place->dir &&
            ret_place->offset >= segment->offset &&
            ret_place->offset < segment->offset + segment->used_bytes)
            ret_place->bytes =
                segment->bytes + (ret_place->offset - segment->offset) + STI_SSD_HEADER_BYTES;
    }
    return true;
}

uint64_t
sti_ssd_prepare(const struct sti_ssd *ssd, const struct sti_ssd_place *place, uint64_t n_bytes,
                void *bytes, struct sti_aio_op *op)
{
    const struct sti_ssd_dir *dir = &ssd->parts[place->dir].dir;
    uint64_t block_bytes = dir->dio.block_bytes;
    uint64_t skew = place->offset % block_bytes;
    uint64_t end = place->offset + STI_SSD_HEADER_BYTES + n_bytes;

    op->kind = STI_AIO_READ;
    op->fd = dir->data_fd;
    op->bytes = bytes;
    op->offset = place->offset - skew;
    op->is_ssd = true;
    op->n_bytes = (uint32_t)((end + block_bytes - 1) / block_bytes * block_bytes - op->offset);
    return skew + STI_SSD_HEADER_BYTES;
}

int
sti_ssd_check(const struct sti_ssd *ssd, const struct sti_ssd_place *place, uint64_t sample,
              uint64_t n_bytes, const struct sti_aio_op *op)
{
    const struct sti_ssd_dir *dir = &ssd->parts[place->dir].dir;
    const char *header = (const char *)op->bytes + place->offset % dir->dio.block_bytes;
    struct sti_ssd_record record = {
        .sample = sample, .offset = place->offset, .n_bytes = (uint32_t)n_bytes};

    if (op->result < 0)
        return op->result;
    if ((uint64_t)op->result < place->offset - op->offset + STI_SSD_HEADER_BYTES + n_bytes ||
        !sti_ssd_header_check(header, &dir->identity, &record) ||
        sti_crc32c(0, header + STI_SSD_HEADER_BYTES, n_bytes) != record.crc)
        return STK_E_CORRUPT;
    return 0;
}

void
sti_ssd_lose(struct sti_ssd *ssd, const struct sti_ssd_place *place, uint64_t sample, int code)
{
    if (code == STK_E_CORRUPT) {
        ssd->n_refused++;
        sti_ssd_forget(ssd, sample);
    } else {
        sti_ssd_drop(ssd, place->dir, code);
    }
}
