/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A save as a row of stages, whose order is the order of the guarantee: parts are made, written,
 * synced, closed and their directories synced; the writers vote; the coordinator of several puts
 * together what they have written and writes the header of that, in the same way; the manifest is
 * written into a directory of its own, which is renamed to step-N, the one commit point; then the
 * parent is synced and the save is acknowledged.
 */
#include "ckpt/save_stages.h"

#define ALL(stages) STI_STAGE_RUN(stages, STI_STAGE_ALL, NULL)
#define FIRST(stages) STI_STAGE_RUN(stages, STI_STAGE_FIRST, NULL)
#define KEEPERS(stages) STI_STAGE_RUN(stages, STI_STAGE_KEEPERS, NULL)
#define HEADER(stages) STI_STAGE_RUN(stages, STI_STAGE_FIRST, "the header")

/* ---- what several are made of ------------------------------------------------------ */

static const struct sti_stage make[] = {
    {"make directory", sti_stage_make_dirs, sti_stage_check_made, NULL},
};

static const struct sti_stage files[] = {
    {"create", sti_stage_open_parts, sti_stage_check_opened, NULL},
    {"reserve space", sti_stage_reserve, sti_stage_check_reserved, NULL},
    {"write", sti_stage_begin_writing, NULL, sti_stage_is_written},
    {"set size", sti_stage_set_sizes, NULL, NULL},
    {"sync", sti_stage_sync_parts, NULL, NULL},
    {"close", sti_stage_close_parts, sti_stage_check_closed, NULL},
};

static const struct sti_stage names[] = {
    {"sync directory", sti_stage_sync_part_dirs, NULL, NULL},
    {"sync root", sti_stage_sync_roots, NULL, NULL},
};

static const struct sti_stage vote[] = {
    {"make the ballot", sti_stage_make_ballot, sti_stage_check_ballot, NULL},
    {"vote", sti_stage_vote, NULL, sti_stage_is_tallied},
};

static const struct sti_stage merge[] = {
    {"put the ballots together", sti_stage_put_together, sti_stage_check_merged, NULL},
};

static const struct sti_stage own_manifest[] = {
    {"make the manifest's directory", sti_stage_make_commit_dir, sti_stage_check_commit_dir, NULL},
};

static const struct sti_stage manifest[] = {
    {"create the manifest", sti_stage_open_manifest, sti_stage_check_manifest_opened, NULL},
    {"write the manifest", sti_stage_write_manifest, sti_stage_check_manifest_written, NULL},
    {"sync the manifest", sti_stage_sync_manifest, NULL, NULL},
    {"close the manifest", sti_stage_close_manifest, sti_stage_check_closed, NULL},
    {"sync the manifest's directory", sti_stage_sync_commit_dir, NULL, NULL},
    {"commit", sti_stage_commit, sti_stage_check_committed, NULL},
    {"sync after the commit", sti_stage_sync_directory, NULL, NULL},
};

static const struct sti_stage end[] = {
    {"decide", sti_stage_decide, NULL, sti_stage_is_decided},
    {"acknowledge", sti_stage_acknowledge, NULL, NULL},
};

/* ---- a save ------------------------------------------------------------------------ */

static const struct sti_stage look_for_parts[] = {
    {"look for the parts", sti_stage_look_for_parts, sti_stage_check_seen, NULL},
};

static const struct sti_stage_run plain[] = {
    ALL(make),
    ALL(files),
    ALL(names),
    ALL(vote),
    FIRST(merge),
    HEADER(make),
    HEADER(files),
    HEADER(names),
    FIRST(look_for_parts),
    FIRST(own_manifest),
    FIRST(manifest),
    ALL(end),
    {0},
};

/* ---- a copy to the shared directory ------------------------------------------------ */

static const struct sti_stage open_saved[] = {
    {"open what was saved", sti_stage_open_sources, sti_stage_check_source_opened, NULL},
};

static const struct sti_stage close_saved[] = {
    {"close what was saved", sti_stage_close_sources, sti_stage_check_source_closed, NULL},
};

static const struct sti_stage short_vote[] = {
    {"make the ballot", sti_stage_make_short_ballot, NULL, NULL},
    {"vote", sti_stage_vote, NULL, sti_stage_is_tallied},
};

static const struct sti_stage look_for_all[] = {
    {"look for the parts", sti_stage_look_for_all, sti_stage_check_seen, NULL},
};

static const struct sti_stage_run drain[] = {
    ALL(make),
    ALL(open_saved),
    ALL(files),
    ALL(close_saved),
    ALL(names),
    ALL(short_vote),
    FIRST(look_for_all),
    FIRST(own_manifest),
    FIRST(manifest),
    ALL(end),
    {0},
};

/* ---- a save of nodes with roots of their own ---------------------------------------
 *
 * The manifest comes with the verdict, every keeper commits it, and a second vote makes sure that
 * all have. */

static const struct sti_stage look_for_step[] = {
    {"look for the step", sti_stage_look_for_step, sti_stage_check_free, NULL},
};

static const struct sti_stage encode[] = {
    {"encode the manifest", sti_stage_encode, sti_stage_check_encoded, NULL},
};

static const struct sti_stage publish[] = {
    {"publish the manifest", sti_stage_publish, NULL, sti_stage_is_published},
};

static const struct sti_stage fetch[] = {
    {"fetch the manifest", sti_stage_fetch, NULL, sti_stage_is_fetched},
    {"make the manifest's directory", sti_stage_make_keepers_dir, sti_stage_check_keepers_dir,
     NULL},
};

static const struct sti_stage vote_on_commit[] = {
    {"vote on the commit", sti_stage_vote_again, NULL, sti_stage_is_tallied},
};

static const struct sti_stage_run nodes[] = {
    ALL(make),         ALL(files),          ALL(names),   KEEPERS(look_for_step),
    ALL(vote),         FIRST(merge),        HEADER(make), HEADER(files),
    HEADER(names),     FIRST(encode),       ALL(publish), KEEPERS(fetch),
    KEEPERS(manifest), ALL(vote_on_commit), ALL(end),     {0},
};

/* ---- a copy from another node ------------------------------------------------------
 *
 * Its manifest is here already. */

static const struct sti_stage read_manifest[] = {
    {"look at the manifest", sti_stage_look_at_manifest, sti_stage_check_manifest_seen, NULL},
    {"read the manifest", sti_stage_read_manifest, sti_stage_check_manifest_read, NULL},
};

static const struct sti_stage look_for_copies[] = {
    {"look for the copy", sti_stage_look_for_copies, sti_stage_check_no_copy, NULL},
};

static const struct sti_stage name_copies[] = {
    {"name the copy", sti_stage_name_copies, sti_stage_check_named, NULL},
};

static const struct sti_stage vote_on_copy[] = {
    {"vote on the copy", sti_stage_vote_again, NULL, sti_stage_is_tallied},
};

static const struct sti_stage_run pull[] = {
    ALL(read_manifest), ALL(make),        ALL(look_for_copies),
    ALL(files),         ALL(name_copies), ALL(names),
    ALL(vote_on_copy),  ALL(end),         {0},
};

const struct sti_stage_run *
sti_stage_protocol(const struct sti_save *save)
{
    return save->is_drain              ? drain
           : save->is_pull             ? pull
           : save->saver->opts.commits ? nodes
                                       : plain;
}
