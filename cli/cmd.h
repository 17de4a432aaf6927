/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commands. Each is a function that gets its own name as argv[0] and returns the
 * program's exit status, and a text for "stoker help". SIGINT keeps its default
 * disposition unless a command has something to put in order first; such a command
 * installs its own handler and returns 130.
 */
#ifndef CLI_CMD_H
#define CLI_CMD_H

extern const char cmd_index_help[];
int
cmd_index(int argc, char **argv);
extern const char cmd_bench_help[];
extern const char cmd_bench_save_help[];
int
cmd_bench(int argc, char **argv);

extern const char cmd_ckpt_help[];
int
cmd_ckpt(int argc, char **argv);

extern const char cmd_explain_help[];
int
cmd_explain(int argc, char **argv);
extern const char cmd_probe_help[];
int
cmd_probe(int argc, char **argv);

extern const char cmd_order_help[];
int
cmd_order(int argc, char **argv);

extern const char cmd_simulate_help[];
int
cmd_simulate(int argc, char **argv);

#endif
