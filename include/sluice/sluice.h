/* libsluice: access lists, routes, devices and whole graphs of Sluice in a program of your own.
 *
 * C99 and C++. SPDX-License-Identifier: Apache-2.0
 *
 * HANDLES  A handle is made by one function and freed by another; freeing NULL does nothing. No other call on a handle
 *   may be under way, or follow, when it is freed. What a handle needs of others it keeps alive itself: a channel goes
 *   on when its table and its device are freed.
 *
 * THREADS  Each function says who may call it. "Any thread" is any number of threads at the same time, also while
 *   another thread changes the table. A thread's first lookup makes it known to the library until it ends: it allocates
 *   (some hundred bytes; 12 KiB where the library has CUDA) and takes a lock for a moment. All later lookups of that
 *   thread allocate nothing and wait for nobody. A change waits until lookups of other threads that began before it have
 *   returned. A child of fork() calls nothing but exec.
 *
 * GENERATIONS  A table is a sequence of generations, numbered from 1. Each change makes a new one, whole or not at all,
 *   and every answer of one call is of one generation, whose number the call returns.
 *
 * ERRORS  A function that can fail takes `errors`, which may be NULL. When it fails, *errors is a list of all that is
 *   wrong, which the caller frees with sluice_errors_free; else it is NULL. A handle is NULL on failure, an int 0 on
 *   success and -1 on failure. No memory is an error, too. The library never prints, never exits, and installs no
 *   signal handler.
 *
 * BYTE ORDER  Host order throughout, addresses and ports included, except inside frames.
 */
#ifndef SLUICE_SLUICE_H
#define SLUICE_SLUICE_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define SLUICE_API __attribute__((visibility("default")))
#else
#define SLUICE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Of this header. Programs that were built with version 0.N run with the library of every version 0.M, M >= N. */
#define SLUICE_VERSION_MAJOR 0
#define SLUICE_VERSION_MINOR 1
#define SLUICE_VERSION_PATCH 0

/* The version of the library, such as "0.1.0". Any thread; the text lasts. */
SLUICE_API const char* sluice_version(void);
/* The revision of the source tree that the library was built of, such as "a1b2c3d", with "-dirty" where the tree was
 * changed; "unknown" without one. Any thread; the text lasts. */
SLUICE_API const char* sluice_build_revision(void);

/* ---- errors ----------------------------------------------------------------------------------------------------- */

typedef struct sluice_errors sluice_errors;

/* One finding. Texts are never NULL; "" is: unknown, or none. They last as long as their list. */
typedef struct sluice_error {
  const char* message;  /* what is wrong, with the value */
  const char* file;     /* the file, or what stands for a text in memory */
  const char* source;   /* the line as it stands there */
  const char* expected; /* what was expected */
  const char* help;     /* the next step, or "did you mean ..." */
  uint32_t line;        /* from 1; 0: unknown */
  uint32_t column;      /* bytes, from 1; 0: unknown */
  uint32_t length;      /* bytes, from column */
  uint32_t reserved;
} sluice_error;

/* The number of findings; at least 1, and 0 for NULL. Lists do not change: any thread. */
SLUICE_API size_t sluice_errors_count(const sluice_errors* errors);
/* Finding i, from 0; NULL where there is none. */
SLUICE_API const sluice_error* sluice_errors_at(const sluice_errors* errors, size_t i);
/* All of it for a person, as compilers write, in lines. "" for NULL. Lasts as long as the list. */
SLUICE_API const char* sluice_errors_text(const sluice_errors* errors);
SLUICE_API void sluice_errors_free(sluice_errors* errors);

/* ---- keys ------------------------------------------------------------------------------------------------------- */

/* What access lists see of a packet. Absent fields are 0. */
typedef struct sluice_key {
  uint64_t src_hi, src_lo; /* IPv4: the low 32 bits of src_lo, with src_hi 0 */
  uint64_t dst_hi, dst_lo;
  uint16_t src_port, dst_port; /* with SLUICE_KEY_PORTS */
  uint16_t flags;              /* the byte of TCP flags << 8: 0x0200 is SYN */
  uint8_t protocol;            /* IPv6: the last next header that was reached */
  uint8_t dscp;                /* 0 to 63 */
  uint8_t family;              /* 4 or 6; no rule matches others, which are not IP */
  uint8_t bits;                /* of SLUICE_KEY_... */
  uint16_t icmp;               /* type << 8 | code */
  uint32_t bytes;              /* the packet's length, for the counters of rules alone */
} sluice_key;

enum {
  SLUICE_KEY_PORTS = 1,          /* the packet has ports. A rule that names a port matches no packet without */
  SLUICE_KEY_FRAGMENT = 2,       /* it is a fragment, the first or a later one */
  SLUICE_KEY_LATER_FRAGMENT = 4, /* it is not the first one: there is no layer-4 header */
  /* Packets that end inside their layer-4 header: */
  SLUICE_KEY_NO_FLAGS = 8,      /* TCP without its flags, ICMP without its code: no rule that names them matches */
  SLUICE_KEY_NO_ICMP_TYPE = 16, /* ICMP without its type: the same */
  SLUICE_KEY_SHORT_L4 = 32,     /* the fixed header is not whole: TCP 20 bytes, UDP 8, SCTP and DCCP 12, ICMP 8 */
  SLUICE_KEY_AFTER_AH = 64      /* IPv6: an Authentication Header stands before the layer-4 header */
};

/* Keys of one family by column, n entries each. `protocol` and those below may be NULL: all 0. Where `bits` is NULL,
 * TCP, UDP, UDP-Lite, SCTP and DCCP have SLUICE_KEY_PORTS. */
typedef struct sluice_key_columns {
  size_t size;     /* sizeof(sluice_key_columns) */
  uint32_t family; /* 4 or 6 */
  uint32_t reserved;
  const uint32_t *src4, *dst4;     /* family 4 */
  const uint64_t *src_hi, *src_lo; /* family 6 */
  const uint64_t *dst_hi, *dst_lo; /* family 6 */
  const uint8_t* protocol;
  const uint16_t *src_port, *dst_port;
  const uint16_t *flags, *icmp;
  const uint8_t *dscp, *bits;
  const uint32_t* bytes;
} sluice_key_columns;

/* Reads the key of an Ethernet frame of `captured` bytes that had `wire_bytes` on the wire (without FCS): VLAN tags,
 * IPv4 options, IPv6 extension headers; `wire_bytes` 0: as many as `captured`. 0: *key is filled. -1: it is not IP, or
 * malformed, or a pointer is NULL; *key is 0 but for `bytes` then, and no rule matches it. Any thread. */
SLUICE_API int sluice_key_of_frame(const void* frame, size_t captured, size_t wire_bytes, sluice_key* key);

/* The same of an IP packet without a link header, its version by its first four bits. The checksum of an IPv4 header is
 * taken as good: a card has verified it, or is still to write it. Any thread. */
SLUICE_API int sluice_key_of_packet(const void* packet, size_t captured, size_t wire_bytes, sluice_key* key);

/* ---- access lists ----------------------------------------------------------------------------------------------- */

typedef struct sluice_acl sluice_acl;

typedef struct sluice_acl_options {
  size_t size;           /* sizeof(sluice_acl_options) */
  const char* algorithm; /* a name of `sluice tables --algorithms`; NULL: auto, which chooses by the list */
  const char* format;    /* classbench, native, vpp, iptables[:CHAIN], nft[:[TABLE/]CHAIN], each with @STATE
                            behind it where rules look at connections (auto@new); NULL: by content */
  uint32_t count;        /* 1: each rule counts its packets and bytes (sluice_acl_counters) */
  uint32_t reserved;
} sluice_acl_options;
#define SLUICE_ACL_OPTIONS_INIT \
  { sizeof(sluice_acl_options), NULL, NULL, 0, 0 }

enum { SLUICE_NO_MATCH = 0, SLUICE_PERMIT = 1, SLUICE_DENY = 2, SLUICE_MARK = 3 };

/* The answer for one key. */
typedef struct sluice_match {
  uint32_t rule;   /* position of the first rule that matches, from 1; 0: none does */
  uint32_t action; /* SLUICE_NO_MATCH, SLUICE_PERMIT, SLUICE_DENY, SLUICE_MARK (permit, and set `mark`) */
  uint32_t mark;
} sluice_match;

/* Reads a file: rules of a format that `sluice check --rules` takes, plain or compressed, or an image of `sluice
 * compile` or sluice_acl_save. `options` may be NULL. Any thread. */
SLUICE_API sluice_acl* sluice_acl_open(const char* path, const sluice_acl_options* options, sluice_errors** errors);
/* The same of `n` bytes in memory, which are not used after the call; `name` stands for the file in errors and rules.
 */
SLUICE_API sluice_acl* sluice_acl_read(const void* bytes, size_t n, const char* name, const sluice_acl_options* options,
                                       sluice_errors** errors);
SLUICE_API void sluice_acl_free(sluice_acl* acl);

/* Looks up n keys of any families, in bursts of 32 inside; matches[i] is the answer for keys[i]. Returns the
 * generation that all answers are of; 0 where a pointer is NULL and n is not 0, and nothing is written then. Allocates
 * nothing and waits for nobody, but in a thread's first lookup. Any thread. */
SLUICE_API uint64_t sluice_acl_classify(const sluice_acl* acl, const sluice_key* keys, size_t n, sluice_match* matches);
/* The same of keys in columns. Returns 0, too, for a family that is neither 4 nor 6 and for address columns of that
 * family that are NULL. */
SLUICE_API uint64_t sluice_acl_classify_columns(const sluice_acl* acl, const sluice_key_columns* keys, size_t n,
                                                sluice_match* matches);

/* Changes the list by a text, a step a line, all steps or none:
 *   add [at N] RULE      at the end, or so that it stands at position N
 *   delete N             or: delete RULE
 *   replace N RULE
 * RULE is of the native language (docs/reference/formats.md). `name` stands for the text in errors and rules. It is in
 * effect when the call returns. Any thread; changes of one table take turns. Not from a thread that looks up at that
 * moment (a signal handler). */
SLUICE_API int sluice_acl_change(sluice_acl* acl, const char* text, const char* name, sluice_errors** errors);
/* Puts another list in place of all rules: a file, or bytes, as of sluice_acl_open and sluice_acl_read; the algorithm
 * and the format are those of the handle. The counters of rules that are in both go on. */
SLUICE_API int sluice_acl_replace_file(sluice_acl* acl, const char* path, sluice_errors** errors);
SLUICE_API int sluice_acl_replace(sluice_acl* acl, const void* bytes, size_t n, const char* name,
                                  sluice_errors** errors);
/* sluice_acl_replace_file with a format of this call's own, as of sluice_acl_options; NULL: by content. */
SLUICE_API int sluice_acl_replace_file_as(sluice_acl* acl, const char* path, const char* format,
                                          sluice_errors** errors);
/* Writes the list as an image, which loads without parsing and building. The file appears when it is complete. Any
 * thread. */
SLUICE_API int sluice_acl_save(sluice_acl* acl, const char* path, sluice_errors** errors);

/* Of the newest generation; 0 for NULL. Any thread. */
SLUICE_API size_t sluice_acl_size(const sluice_acl* acl); /* rules */
SLUICE_API uint64_t sluice_acl_generation(const sluice_acl* acl);
/* The algorithm by which it is looked up, "" for NULL. The text lasts. */
SLUICE_API const char* sluice_acl_algorithm(const sluice_acl* acl);

/* What lookups go through, for people: 0 where the algorithm has none of it. */
typedef struct sluice_acl_shape {
  size_t size;     /* sizeof(sluice_acl_shape), filled by the caller */
  uint64_t tables; /* hash tables */
  uint64_t slots;  /* of all tables */
  uint64_t bytes;  /* of the whole image */
} sluice_acl_shape;
/* Fills *shape for the newest generation. -1: a pointer is NULL, or `size` is another. Any thread. */
SLUICE_API int sluice_acl_measure(const sluice_acl* acl, sluice_acl_shape* shape);

/* A rule, for people. Texts are never NULL and last as long as the struct. */
typedef struct sluice_rule {
  const char* text; /* in the native language */
  const char* file; /* where it was read, "" where that is unknown */
  uint32_t line;    /* 0: unknown */
  uint32_t action;
  uint32_t mark;
  uint32_t reserved;
  uint64_t generation; /* that has it at this position */
} sluice_rule;

/* The rule at a position of the newest generation, from 1; the caller frees it with sluice_rule_free. Compare its
 * generation with that of the lookup where the list may have changed since. Errors: there is none. Any thread. */
SLUICE_API sluice_rule* sluice_acl_rule(const sluice_acl* acl, uint32_t position, sluice_errors** errors);
SLUICE_API void sluice_rule_free(sluice_rule* rule);

typedef struct sluice_counter {
  uint64_t packets;
  uint64_t bytes; /* the sum of sluice_key.bytes */
} sluice_counter;

/* Writes the counters of a list that was opened with `count`, since they were cleared: [0] of packets that no rule
 * matched, [i] of the rule at position i, at most n of them; `*removed`, if not NULL, of rules that are gone. A counter
 * follows its rule through changes. Lookups that are under way may or may not be in it; those of a channel are in it
 * when their answers are fetched. Returns how many there are, which is sluice_acl_size + 1, or 0 on failure. Errors:
 * the list does not count. Any thread. */
SLUICE_API size_t sluice_acl_counters(const sluice_acl* acl, sluice_counter* counters, size_t n,
                                      sluice_counter* removed, sluice_errors** errors);
/* From here on they count from 0. Lookups wait for nothing. Errors: the list does not count. Any thread. */
SLUICE_API int sluice_acl_clear_counters(sluice_acl* acl, sluice_errors** errors);

/* ---- routes ----------------------------------------------------------------------------------------------------- */

typedef struct sluice_fib sluice_fib;

typedef struct sluice_fib_options {
  size_t size;            /* sizeof(sluice_fib_options) */
  const char* algorithm4; /* for IPv4, a name of `sluice tables --algorithms`, or auto; NULL: auto */
  const char* algorithm6; /* for IPv6; NULL: auto, which chooses by the table */
} sluice_fib_options;
#define SLUICE_FIB_OPTIONS_INIT \
  { sizeof(sluice_fib_options), NULL, NULL }

/* Reads route files, text (as `ip route` writes, too) or MRT, plain or compressed: PATH[,PATH ...], each with options
 * as docs/reference/formats.md has them (PATH,source=NAME); or one image. `options` may be NULL. Any thread. */
SLUICE_API sluice_fib* sluice_fib_open(const char* paths, const sluice_fib_options* options, sluice_errors** errors);
/* The same of one file's n bytes in memory, which are not used after the call. `name` is without a comma. */
SLUICE_API sluice_fib* sluice_fib_read(const void* bytes, size_t n, const char* name, const sluice_fib_options* options,
                                       sluice_errors** errors);
SLUICE_API void sluice_fib_free(sluice_fib* fib);

/* Looks up n IPv4 addresses; next_hops[i] is the next hop's number for addresses[i], 0 where there is no route.
 * Returns the generation that all answers are of; 0 where a pointer is NULL and n is not 0, and nothing is written
 * then. Allocates nothing and waits for nobody, but in a thread's first lookup. Any thread. */
SLUICE_API uint64_t sluice_fib_lookup4(const sluice_fib* fib, const uint32_t* addresses, size_t n, uint32_t* next_hops);
/* The same of n IPv6 addresses: their high and their low 64 bits. */
SLUICE_API uint64_t sluice_fib_lookup6(const sluice_fib* fib, const uint64_t* hi, const uint64_t* lo, size_t n,
                                       uint32_t* next_hops);

/* Changes routes by a text, a step a line, all steps or none:
 *   add PREFIX [via] NEXTHOP [metric N] [source NAME] [preference N]
 *   append PREFIX [via] NEXTHOP ...      another next hop beside those that the route has
 *   delete PREFIX [metric N] [source NAME]
 *   delete all source NAME
 * It is in effect when the call returns. Next hops keep their numbers. Errors: also that the routes are of an image,
 * which has none to change. Any thread; changes of one table take turns. */
SLUICE_API int sluice_fib_change(sluice_fib* fib, const char* text, const char* name, sluice_errors** errors);
/* Puts other routes in place of all, as of sluice_fib_open (no image) and sluice_fib_read. Next hops that are in both
 * keep their numbers. */
SLUICE_API int sluice_fib_replace_file(sluice_fib* fib, const char* paths, sluice_errors** errors);
SLUICE_API int sluice_fib_replace(sluice_fib* fib, const void* bytes, size_t n, const char* name,
                                  sluice_errors** errors);
/* Writes the routes as an image. The file appears when it is complete. Any thread. */
SLUICE_API int sluice_fib_save(sluice_fib* fib, const char* path, sluice_errors** errors);

/* Of the newest generation; 0 for NULL. Any thread. */
SLUICE_API uint64_t sluice_fib_generation(const sluice_fib* fib);
SLUICE_API uint32_t sluice_fib_next_hops(const sluice_fib* fib); /* their numbers are 1 to this */
/* The algorithm for family 4 or 6; "" for NULL and other families. The text lasts. */
SLUICE_API const char* sluice_fib_algorithm(const sluice_fib* fib, int family);
/* Writes the next hop's text, as it stands in the routes, with a NUL into `text`, cut to `size` bytes; `text` may be
 * NULL where size is 0. Returns its length without the NUL, which may be larger; 0 where there is no such number. Any
 * thread. */
SLUICE_API size_t sluice_fib_next_hop(const sluice_fib* fib, uint32_t number, char* text, size_t size);

/* ---- devices ---------------------------------------------------------------------------------------------------- */

typedef struct sluice_device sluice_device;
typedef struct sluice_channel sluice_channel;

/* "cpu" (the calling thread), "emu" (host threads in a GPU's place), "cuda" or "cuda:N". To test what a program does
 * then, "emu:fail-after=N" reports an error after N records, and "emu:stop-after=N" answers none any more. Errors:
 * there is none, with the reason. Any thread; a device takes any number of channels. */
SLUICE_API sluice_device* sluice_device_open(const char* name, sluice_errors** errors);
SLUICE_API void sluice_device_free(sluice_device* device);
/* Its name for people, such as "NVIDIA H100 80GB HBM3"; "" for NULL. Lasts as long as the handle. */
SLUICE_API const char* sluice_device_name(const sluice_device* device);

enum { SLUICE_LAUNCH = 0, SLUICE_PERSISTENT = 1, SLUICE_ADAPTIVE = 2 };

typedef struct sluice_channel_options {
  size_t size;      /* sizeof(sluice_channel_options) */
  uint32_t mode;    /* SLUICE_LAUNCH: a kernel per burst; SLUICE_PERSISTENT: resident kernels;
                       SLUICE_ADAPTIVE: resident while bursts of half of `burst` and more come, else a kernel each */
  uint32_t burst;   /* most keys of one submit, 1 to 8192; 0: 256 */
  uint32_t flights; /* bursts on their way at a time, 1 to 16; 0: 4 */
  uint32_t reserved;
} sluice_channel_options;
#define SLUICE_CHANNEL_OPTIONS_INIT \
  { sizeof(sluice_channel_options), SLUICE_LAUNCH, 0, 0, 0 }

/* Opens a way to a device for lookups in one table, whose newest generation is copied there. A channel is one thread's:
 * calls on it never overlap. `options` may be NULL. Any thread. */
SLUICE_API sluice_channel* sluice_channel_open_acl(sluice_device* device, const sluice_acl* acl,
                                                   const sluice_channel_options* options, sluice_errors** errors);
/* The same for routes: keys are looked up by their destination. */
SLUICE_API sluice_channel* sluice_channel_open_fib(sluice_device* device, const sluice_fib* fib,
                                                   const sluice_channel_options* options, sluice_errors** errors);
/* Waits, at most a second, until the device is done with what it was given. */
SLUICE_API void sluice_channel_free(sluice_channel* channel);

/* Hands over n keys as one burst, which are copied. Returns n; or 0, and nothing is taken: n is larger than a burst, or
 * all flights are on their way (poll first). Never waits. */
SLUICE_API size_t sluice_channel_submit(sluice_channel* channel, const sluice_key* keys, size_t n);
/* Fetches up to n answers that are there, in the order of the keys. A channel of an access list fills `matches`, one of
 * routes `next_hops`; the other may be NULL. Returns how many. Every key is answered once: what a device cannot answer,
 * or not any more, the calling thread looks up. Never waits. */
SLUICE_API size_t sluice_channel_poll(sluice_channel* channel, sluice_match* matches, uint32_t* next_hops, size_t n);
/* Keys that were taken and whose answers were not fetched yet. */
SLUICE_API size_t sluice_channel_pending(const sluice_channel* channel);

/* Looks up in the calling thread what is pending, so that sluice_channel_poll fetches all of it at once: for whoever
 * waits no longer. What the device answers after all is ignored; a flight is free for sluice_channel_submit when the
 * device is done with it. */
SLUICE_API void sluice_channel_settle(sluice_channel* channel);
/* How often SLUICE_ADAPTIVE has changed between a kernel a burst and resident kernels; 0 for NULL. */
SLUICE_API uint64_t sluice_channel_switches(const sluice_channel* channel);

/* Goes over to the table's newest generation, which is copied to the device. Until then all answers are of the
 * generation before. Errors: keys are pending (fetch their answers first); the device. */
SLUICE_API int sluice_channel_update(sluice_channel* channel, sluice_errors** errors);
/* That answers are of; 0 for NULL. */
SLUICE_API uint64_t sluice_channel_generation(const sluice_channel* channel);
/* Why the device answers no more; "" while it does. Lasts until the next call. */
SLUICE_API const char* sluice_channel_failure(const sluice_channel* channel);

/* ---- tables in a device's memory -------------------------------------------------------------------------------- */

/* One table in the memory of one device, for keys and answers that lie in that memory, too: nothing of them crosses. */
typedef struct sluice_resident sluice_resident;

/* Copies the table's newest generation at the first lookup, and each later one at the first lookup after the change.
 * Keeps no generation of the host's. Errors: the device is "cpu", which has no memory of its own (that of "emu" is the
 * host's); the list was opened with `count`, since such lookups are not counted. Any thread. */
SLUICE_API sluice_resident* sluice_resident_open_acl(sluice_device* device, const sluice_acl* acl,
                                                     sluice_errors** errors);
/* The same for routes: keys are looked up by their destination. */
SLUICE_API sluice_resident* sluice_resident_open_fib(sluice_device* device, const sluice_fib* fib,
                                                     sluice_errors** errors);
SLUICE_API void sluice_resident_free(sluice_resident* resident);

/* A column in the device's memory: entry i lies at `data` + i * `stride` bytes. Both are multiples of the type's size
 * (8 for sluice_key). NULL: there is no such column. */
typedef struct sluice_column {
  const void* data;
  int64_t stride;
} sluice_column;

/* Keys by column; or `keys` alone, which is in place of all below. Absent columns are 0. A key has the addresses of its
 * family; routes need no src4 and src6. */
typedef struct sluice_resident_keys {
  size_t size;                      /* sizeof(sluice_resident_keys) */
  uint32_t family;                  /* 4 or 6: of all keys, where there is no column `families` */
  uint32_t all_bits;                /* SLUICE_KEY_... of all keys, where there is no column `bits` */
  sluice_column keys;               /* sluice_key */
  sluice_column families;           /* uint8_t */
  sluice_column src4, dst4;         /* uint32_t */
  sluice_column src6, dst6;         /* 16 bytes in network order, not aligned */
  sluice_column protocol;           /* uint8_t */
  sluice_column src_port, dst_port; /* uint16_t */
  sluice_column flags;              /* uint16_t, as in sluice_key */
  sluice_column tcp_flags;          /* uint8_t, in place of `flags`: the byte of TCP flags */
  sluice_column icmp;               /* uint16_t */
  sluice_column dscp, bits;         /* uint8_t */
} sluice_resident_keys;
#define SLUICE_RESIDENT_KEYS_INIT                                                                                    \
  {                                                                                                                  \
    sizeof(sluice_resident_keys), 4, 0, {NULL, 0}, {NULL, 0}, {NULL, 0}, {NULL, 0}, {NULL, 0}, {NULL, 0}, {NULL, 0}, \
        {NULL, 0}, {NULL, 0}, {NULL, 0}, {NULL, 0}, {NULL, 0}, {NULL, 0}, {                                          \
      NULL, 0                                                                                                        \
    }                                                                                                                \
  }

/* What is written for each key. */
enum {
  SLUICE_ANSWER_POSITION = 0, /* of an access list: uint32_t, as sluice_match.rule */
  SLUICE_ANSWER_ACTION = 1,   /* uint8_t, as sluice_match.action */
  SLUICE_ANSWER_MARK = 2,     /* uint32_t, as sluice_match.mark */
  SLUICE_ANSWER_NEXT_HOP = 3, /* of routes: uint32_t, the next hop's number, 0 where there is no route */
  SLUICE_ANSWER_INDEX = 4     /* of routes: int32_t, that number less 1 */
};

/* Looks up n keys in the newest generation and writes n answers, one after another, to `answers` in the device's
 * memory. It runs behind what `stream` was given before: a cudaStream_t of the device, or NULL, which is
 * sluice_resident_stream. The answers are there on return. Returns the generation that all of them are of; 0 on
 * failure. Errors: a column that is not aligned; addresses that are missing; an answer that the table does not have; no
 * room for the generation in the device's memory; the device has failed, and answers may be half written then. Any
 * thread. */
SLUICE_API uint64_t sluice_resident_lookup(sluice_resident* resident, const sluice_resident_keys* keys, size_t n,
                                           uint32_t answer, void* answers, void* stream, sluice_errors** errors);
/* The stream of lookups that name none, for events of whoever fills the columns: a cudaStream_t, which lasts as long as
 * the device. On "emu" an address that means nothing. Any thread. */
SLUICE_API void* sluice_resident_stream(sluice_resident* resident, sluice_errors** errors);

/* ---- graphs ----------------------------------------------------------------------------------------------------- */

typedef struct sluice_graph sluice_graph;

typedef struct sluice_graph_options {
  size_t size;       /* sizeof(sluice_graph_options) */
  uint32_t workers;  /* threads that run it, 1 to 256; 0: 1 */
  uint32_t capacity; /* packets that it holds at a time, with those that wait to be taken and fates that wait to be
                        fetched: whoever fetches no fates is refused after as many packets; 0: 8192 */
} sluice_graph_options;
#define SLUICE_GRAPH_OPTIONS_INIT \
  { sizeof(sluice_graph_options), 0, 0 }

/* Reads a graph in Click's language, with its tables, and starts it on threads of its own. Its inputs are its sources
 * and its outputs its sinks, except Discard: frames come from and go to the caller in place of the captures that
 * FromDump, ToDump and the like name, and these are not opened. Errors: those of `sluice check`; live ports; queues,
 * timers and scripts, which need the packet scheduler. `options` may be NULL. Any thread. */
SLUICE_API sluice_graph* sluice_graph_open(const char* path, const sluice_graph_options* options,
                                           sluice_errors** errors);
/* The same of a text; `name` stands for it in errors. */
SLUICE_API sluice_graph* sluice_graph_read(const char* text, const char* name, const sluice_graph_options* options,
                                           sluice_errors** errors);
/* Ends it; packets that are inside are lost. */
SLUICE_API void sluice_graph_free(sluice_graph* graph);

/* The number of an input or output by its element's name, such as "out"; -1 where there is none. Any thread. */
SLUICE_API int sluice_graph_input(const sluice_graph* graph, const char* name);
SLUICE_API int sluice_graph_output(const sluice_graph* graph, const char* name);

/* An Ethernet frame. */
typedef struct sluice_frame {
  const uint8_t* data;
  uint32_t captured;     /* bytes at `data`, at most 262,144 */
  uint32_t wire_bytes;   /* on the wire, without FCS; 0: as many as `captured`; at most 2^31 - 1 count */
  uint64_t timestamp_ns; /* since 1970; rates and queues go by it */
} sluice_frame;

/* Hands n frames to an input, which are copied. Returns how many were taken, from the first on: fewer where the graph
 * holds its capacity, has ended, or an argument is wrong. Packets are numbered from 1 in the order of all pushes. Never
 * waits for packets. Any thread. */
SLUICE_API size_t sluice_graph_push(sluice_graph* graph, int input, const sluice_frame* frames, size_t n);

/* A packet that has left. */
typedef struct sluice_packet {
  const uint8_t* data; /* until the next sluice_graph_take, or sluice_graph_free */
  uint32_t captured;
  uint32_t wire_bytes;
  uint64_t timestamp_ns;
  int32_t output; /* by which output */
  uint32_t port;  /* of the adjacency */
} sluice_packet;

/* Fetches up to n packets that have left, in the order of each output. Returns how many. Never waits for packets. One
 * thread at a time. */
SLUICE_API size_t sluice_graph_take(sluice_graph* graph, sluice_packet* packets, size_t n);

/* What became of a packet that was pushed. */
typedef struct sluice_fate {
  uint64_t number;   /* of the packet */
  uint32_t reason;   /* 0: it left by an output; else why it was dropped (sluice_drop_reason) */
  uint32_t element;  /* that dropped it (sluice_graph_element) */
  uint32_t rule;     /* of the last access list that it met; 0: none */
  uint32_t next_hop; /* of the last route table that it met; 0: none */
} sluice_fate;

/* Fetches up to n fates, in the order in which inputs were read: those of one input in the order of the packets'
 * numbers. Every packet has one. The packets that left by then can
 * be taken, but for those that wait for their time in a Shape. Returns how many. Never waits for packets. One thread at
 * a time. */
SLUICE_API size_t sluice_graph_fates(sluice_graph* graph, sluice_fate* fates, size_t n);
/* The reason's name, such as "ttl-expired"; "" for unknown numbers. The text lasts. */
SLUICE_API const char* sluice_drop_reason(uint32_t reason);
/* The element's name; "" where there is none. Lasts as long as the graph. */
SLUICE_API const char* sluice_graph_element(const sluice_graph* graph, uint32_t element);

/* Waits until the fates of all packets that were pushed can be fetched, at most `timeout_ns`. 0: they can; -1: not yet,
 * or the graph has failed. Any thread. */
SLUICE_API int sluice_graph_wait(sluice_graph* graph, uint64_t timeout_ns);

typedef struct sluice_graph_counts {
  size_t size;      /* sizeof(sluice_graph_counts), filled by the caller */
  uint64_t pushed;  /* packets in */
  uint64_t made;    /* by elements, such as ICMP errors and fragments */
  uint64_t out;     /* by outputs */
  uint64_t dropped; /* with a reason */
} sluice_graph_counts;

/* Takes no more packets, waits until those inside are through, and counts: pushed + made = out + dropped. What has left
 * can still be fetched. Errors: an error of the run, or that the sum does not hold. Once. */
SLUICE_API int sluice_graph_finish(sluice_graph* graph, sluice_graph_counts* counts, sluice_errors** errors);

#ifdef __cplusplus
}
#endif

#endif
