/* Each allocation of a call of libsluice fails in turn, alone and with all that follow: the call says so, nothing has
 * changed, and the next one works. library_test.py builds it with a malloc of its own. */
#define _GNU_SOURCE
#include <errno.h>
#include <sluice/sluice.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t each);

static long fail_at = -1; /* -1: none */
static long seen;
static int onwards;

static int fails(void) {
  if (fail_at < 0) return 0;
  ++seen;
  return onwards ? seen > fail_at : seen == fail_at + 1;
}
void *malloc(size_t n) {
  if (!fails()) return __libc_malloc(n);
  errno = ENOMEM;
  return NULL;
}
void *calloc(size_t n, size_t each) {
  if (!fails()) return __libc_calloc(n, each);
  errno = ENOMEM;
  return NULL;
}

static const char kRules[] = "permit tcp from 10.0.0.0/8 to any port 80\ndeny from any to any\n";
static const char kRoutes[] = "10.0.0.0/8 a\n2001:db8::/32 b\n";
static sluice_acl *acl;
static sluice_fib *fib;

static sluice_match classified(void) {
  sluice_match match;
  sluice_key key;
  memset(&key, 0, sizeof key);
  key.family = 4, key.src_lo = 0x0a000001, key.protocol = 6, key.dst_port = 80, key.bits = SLUICE_KEY_PORTS;
  sluice_acl_classify(acl, &key, 1, &match);
  return match;
}

static int open_acl(sluice_errors **errors) {
  sluice_acl *made = sluice_acl_read(kRules, strlen(kRules), "rules", NULL, errors);
  sluice_acl_free(made);
  return made == NULL ? -1 : 0;
}
static int open_fib(sluice_errors **errors) {
  sluice_fib *made = sluice_fib_read(kRoutes, strlen(kRoutes), "routes", NULL, errors);
  sluice_fib_free(made);
  return made == NULL ? -1 : 0;
}
static int open_graph(sluice_errors **errors) {
  sluice_graph *made = sluice_graph_read("in :: FromDump(a) -> IPInput -> out :: ToDump(b);", "g", NULL, errors);
  sluice_graph_free(made);
  return made == NULL ? -1 : 0;
}
static int change_acl(sluice_errors **errors) {
  return sluice_acl_change(acl, "add at 1 deny udp from any to any\nadd permit from any to any\n", "c", errors);
}
static int change_fib(sluice_errors **errors) { return sluice_fib_replace(fib, kRoutes, strlen(kRoutes), "r", errors); }

static int check(const char *name, int (*call)(sluice_errors **)) {
  for (onwards = 0; onwards < 2; ++onwards) {
    long n;
    for (n = 0;; ++n) {
      sluice_errors *errors = NULL;
      const uint64_t list = sluice_acl_generation(acl), routes = sluice_fib_generation(fib);
      const sluice_match before = classified();
      const uint32_t address = 0x0a000001;
      uint32_t hop = 0;
      sluice_match after;
      int failed;
      seen = 0, fail_at = n;
      failed = call(&errors);
      fail_at = -1;
      if (!failed) break;
      if (sluice_errors_count(errors) == 0) return printf("%s: no error at allocation %ld\n", name, n), 1;
      sluice_errors_free(errors);
      after = classified();
      sluice_fib_lookup4(fib, &address, 1, &hop);
      if (sluice_acl_generation(acl) != list || sluice_fib_generation(fib) != routes || hop != 1 ||
          memcmp(&before, &after, sizeof before) != 0)
        return printf("%s: something has changed at allocation %ld\n", name, n), 1;
    }
    if (n == 0) return printf("%s: no allocation has failed\n", name), 1;
  }
  return 0;
}

int main(void) {
  acl = sluice_acl_read(kRules, strlen(kRules), "rules", NULL, NULL);
  fib = sluice_fib_read(kRoutes, strlen(kRoutes), "routes", NULL, NULL);
  if (acl == NULL || fib == NULL) return 1;
  return check("open_acl", open_acl) || check("open_fib", open_fib) || check("change_acl", change_acl) ||
         check("change_fib", change_fib) || check("open_graph", open_graph);
}
