/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The built-in scenarios: keys and values over the defaults, as a file would set them.
 * Figures of the thesis (Böhringer, "Clairvoyant Prefetching", ETH Zürich 2020), of the
 * paper that came of it (Dryden et al., "Clairvoyant Prefetching for Distributed Machine
 * Learning I/O", SC'21) and of FastPersist (Wang et al., 2024); where those do not print
 * a value, docs/design says how it was inferred. Constant.
 */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "sim/scenario.h"

#define SETTINGS_MAX 24

struct setting {
    const char *key;
    const char *value;
};

struct builtin {
    const char *name;
    const char *summary;
    const char *base; /* NULL, or the one that it starts from */
    struct setting settings[SETTINGS_MAX];
};

static const struct builtin builtins[] = {
    {"thesis-s1",
     "4 ranks, 10 k samples of 0.027 MB: fits into staging",
     NULL,
     {{"samples", "10000"},
      {"sample_mb", "0.027"},
      {"sample_sigma_mb", "0.01"},
      {"epochs", "10"},
      {"ranks", "4"},
      {"batch", "25"},
      {"drop_last", "yes"},
      {"compute_mb_s", "100"},
      {"decode_mb_s", "200"},
      {"net_mb_s", "10000"},
      {"origin_link_mb_s", "2000"},
      {"origin_mb_s", "1:66 2:86 3:129 4:146"},
      {"staging_mb", "1024"},
      {"staging_threads", "2"},
      {"staging_mb_s", "21164"},
      {"ram_mb", "51200"},
      {"ram_threads", "2"},
      {"ram_mb_s", "21164"},
      {"ssd_mb", "102400"},
      {"ssd_threads", "2"},
      {"ssd_mb_s", "86"}}},
    {"thesis-s2",
     "the same machine, 150 k samples of 1 MB: fits into the RAM of all ranks",
     "thesis-s1",
     {{"samples", "150000"}, {"sample_mb", "1"}, {"sample_sigma_mb", "0.1"}}},
    {"thesis-s3",
     "the same machine, 300 k samples of 2 MB: fits into RAM and SSD of all ranks",
     "thesis-s1",
     {{"samples", "300000"}, {"sample_mb", "2"}, {"sample_sigma_mb", "0.2"}, {"epochs", "5"}}},
    {"thesis-s4",
     "the same machine, 400 k samples of 3 MB: twice what all ranks can hold",
     "thesis-s1",
     {{"samples", "400000"}, {"sample_mb", "3"}, {"sample_sigma_mb", "0.2"}, {"epochs", "5"}}},
    {"sc21-mnist",
     "4 ranks of a cluster with a fast file system, MNIST",
     NULL,
     {{"samples", "50000"},
      {"sample_mb", "0.00076"},
      {"epochs", "5"},
      {"ranks", "4"},
      {"batch", "32"},
      {"drop_last", "yes"},
      {"seed", "42"},
      {"compute_mb_s", "64"},
      {"decode_mb_s", "200"},
      {"net_mb_s", "24000"},
      {"origin_link_mb_s", "24000"},
      {"origin_mb_s", "1:330 2:730 4:1540 8:2870"},
      {"staging_mb", "5120"},
      {"staging_threads", "8"},
      {"staging_mb_s", "111000"},
      {"ram_mb", "122880"},
      {"ram_threads", "4"},
      {"ram_mb_s", "85000"},
      {"ssd_mb", "921600"},
      {"ssd_threads", "2"},
      {"ssd_mb_s", "4000"}}},
    {"sc21-imagenet1k",
     "the same machine, ImageNet-1k",
     "sc21-mnist",
     {{"samples", "1281167"}, {"sample_mb", "0.1077"}, {"sample_sigma_mb", "0.1"}}},
    {"sc21-openimages",
     "the same machine, OpenImages",
     "sc21-mnist",
     {{"samples", "1743042"}, {"sample_mb", "0.2937"}, {"sample_sigma_mb", "0.2"}}},
    {"sc21-imagenet22k",
     "the same machine, ImageNet-22k",
     "sc21-mnist",
     {{"samples", "14197122"}, {"sample_mb", "0.1077"}, {"sample_sigma_mb", "0.2"}}},
    {"sc21-cosmoflow",
     "the same machine, CosmoFlow: 262 k samples of 17 MB",
     "sc21-mnist",
     {{"samples", "262144"}, {"sample_mb", "17"}, {"batch", "16"}}},
    {"sc21-cosmoflow512",
     "the same machine with 8 ranks, CosmoFlow: 10 k samples of 1 GB",
     "sc21-mnist",
     {{"samples", "10000"}, {"sample_mb", "1000"}, {"batch", "1"}, {"ranks", "8"}}},
    {"io-bound",
     "8 ranks that ask six times what the file system gives: policies differ",
     NULL,
     {{"samples", "400000"},
      {"sample_mb", "0.5"},
      {"sample_sigma_mb", "0.2"},
      {"ranks", "8"},
      {"batch", "32"},
      {"epochs", "6"},
      {"drop_last", "yes"},
      {"compute_mb_s", "300"},
      {"decode_mb_s", "400"},
      {"net_mb_s", "5000"},
      {"net_latency_ms", "0.02"},
      {"origin_link_mb_s", "3000"},
      {"origin_latency_ms", "2"},
      {"origin_mb_s", "1:150 2:260 4:380 8:400"},
      {"staging_mb", "1024"},
      {"staging_threads", "8"},
      {"ram_mb", "8192"},
      {"ram_mb_s", "10000"},
      {"ssd_mb", "10240"},
      {"ssd_mb_s", "1500"},
      {"ssd_latency_ms", "0.1"}}},
    {"thesis-env-none",
     "thesis-s3 by hierarchy: staging alone",
     "thesis-s3",
     {{"ram_mb", "0"}, {"ssd_mb", "0"}}},
    {"thesis-env-ram10", "staging and 10 GB of RAM", "thesis-env-none", {{"ram_mb", "10240"}}},
    {"thesis-env-ram20", "staging and 20 GB of RAM", "thesis-env-none", {{"ram_mb", "20480"}}},
    {"thesis-env-ram40", "staging and 40 GB of RAM", "thesis-env-none", {{"ram_mb", "40960"}}},
    {"thesis-env-disk20",
     "staging and 20 GB of a 100 MB/s disk",
     "thesis-env-none",
     {{"ssd_mb", "20480"}, {"ssd_mb_s", "100"}}},
    {"thesis-env-disk40", "the same, 40 GB", "thesis-env-disk20", {{"ssd_mb", "40960"}}},
    {"thesis-env-disk80", "the same, 80 GB", "thesis-env-disk20", {{"ssd_mb", "81920"}}},
    {"coverage",
     "what is read from where, in no time: settable ranks, epochs, capacity",
     NULL,
     {{"samples", "20480"},
      {"sample_mb", "0.1"},
      {"ranks", "16"},
      {"epochs", "90"},
      {"batch", "1"},
      {"drop_last", "no"},
      {"capacity", "1"},
      {"timing", "no"}}},
    {"fastpersist-0.7b",
     "0.7 B parameters, data-parallel 128 on 8 DGX-2 nodes, a checkpoint each step",
     NULL,
     {{"samples", "0"},
      {"ckpt_mb", "9800"},
      {"ckpt_single_mb_s", "690"},
      {"ckpt_device_mb_s", "2219"},
      {"ckpt_devices", "8"},
      {"ckpt_nodes", "8"},
      {"ckpt_efficiency", "0.5637"},
      {"ckpt_step_s", "0.6"},
      {"ckpt_overlap_s", "0.55"},
      {"mtbf_hours", "200"},
      {"run_steps", "10000000"}}},
    {"fastpersist-1.3b",
     "1.3 B parameters, data-parallel 64 x tensor-parallel 2",
     "fastpersist-0.7b",
     {{"ckpt_mb", "18200"}, {"ckpt_step_s", "0.8"}, {"ckpt_overlap_s", "0.73"}}},
    {"fastpersist-2.7b",
     "2.7 B parameters, data-parallel 32 x tensor-parallel 4",
     "fastpersist-0.7b",
     {{"ckpt_mb", "37800"}, {"ckpt_step_s", "1.3"}, {"ckpt_overlap_s", "1.2"}}},
    {"fastpersist-6.7b",
     "6.7 B parameters, data-parallel 16 x tensor-parallel 8",
     "fastpersist-0.7b",
     {{"ckpt_mb", "93800"}, {"ckpt_step_s", "2.4"}, {"ckpt_overlap_s", "2.2"}}},
    {"fastpersist-13b",
     "13 B parameters, data-parallel 8 x tensor-parallel 16",
     "fastpersist-0.7b",
     {{"ckpt_mb", "182000"}, {"ckpt_step_s", "4.2"}, {"ckpt_overlap_s", "3.9"}}},
    {"fastpersist-175b",
     "175 B parameters, 64 nodes",
     "fastpersist-0.7b",
     {{"ckpt_mb", "2450000"},
      {"ckpt_nodes", "64"},
      {"ckpt_step_s", "7"},
      {"ckpt_overlap_s", "6.5"},
      {"mtbf_hours", "24"}}},
};

#define N_BUILTINS (sizeof(builtins) / sizeof(builtins[0]))

int
sti_scenario_from_builtin(struct sti_scenario *scenario, const char *name, stk_error *err)
{
    for (size_t i = 0; i < N_BUILTINS; i++) {
        const struct builtin *builtin = &builtins[i];
        int rc = 0;

        if (strcmp(builtin->name, name) != 0)
            continue;
        if (builtin->base)
            rc = sti_scenario_from_builtin(scenario, builtin->base, err);
        for (uint32_t k = 0; !rc && k < SETTINGS_MAX && builtin->settings[k].key; k++)
            rc = sti_scenario_set(scenario, builtin->settings[k].key, builtin->settings[k].value,
                                  err);
        return rc ? rc : sti_scenario_set(scenario, "name", name, err);
    }
    return sti_error_set(err, -ENOENT,
                         "there is no built-in scenario '%.80s'; 'stoker simulate --list' has them",
                         name);
}

const char *
sti_scenario_builtin(uint32_t idx, const char **ret_summary)
{
    if (idx >= N_BUILTINS)
        return NULL;
    if (ret_summary)
        *ret_summary = builtins[idx].summary;
    return builtins[idx].name;
}
