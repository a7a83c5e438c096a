/* An access list over five-tuples.
 *
 *   cc five_tuples.c $(pkg-config --cflags --libs sluice) -o five_tuples
 *   ./five_tuples edge.acl < tuples        "PROTOCOL SRC SPORT DST DPORT" a line, IPv4
 *
 * Prints the action of each, and the rule that gives it. */
#include <arpa/inet.h>
#include <inttypes.h>
#include <sluice/sluice.h>
#include <stdio.h>
#include <string.h>

#define BURST 256

static const char *action_name(uint32_t action) {
  static const char *const names[] = {"none", "permit", "deny", "mark"};
  return names[action];
}

/* One line; 0: it is none. */
static int read_tuple(const char *line, sluice_key *key) {
  char src[16], dst[16];
  unsigned protocol, src_port, dst_port;
  struct in_addr address;
  if (sscanf(line, "%u %15s %u %15s %u", &protocol, src, &src_port, dst, &dst_port) != 5) return 0;
  if (protocol > 255 || src_port > 65535 || dst_port > 65535) return 0;
  memset(key, 0, sizeof *key);
  key->family = 4;
  if (inet_pton(AF_INET, src, &address) != 1) return 0;
  key->src_lo = ntohl(address.s_addr);
  if (inet_pton(AF_INET, dst, &address) != 1) return 0;
  key->dst_lo = ntohl(address.s_addr);
  key->protocol = (uint8_t)protocol;
  if (protocol == 6 || protocol == 17) {
    key->bits = SLUICE_KEY_PORTS;
    key->src_port = (uint16_t)src_port;
    key->dst_port = (uint16_t)dst_port;
  }
  return 1;
}

int main(int argc, char **argv) {
  sluice_errors *errors = NULL;
  sluice_acl *acl;
  sluice_key keys[BURST];
  sluice_match matches[BURST];
  char line[256];
  int bad = 0, more = 1;
  if (argc != 2) {
    fprintf(stderr, "usage: %s LIST < TUPLES\n", argv[0]);
    return 2;
  }
  acl = sluice_acl_open(argv[1], NULL, &errors);
  if (acl == NULL) {
    fputs(sluice_errors_text(errors), stderr);
    sluice_errors_free(errors);
    return 1;
  }
  while (more) {
    size_t n = 0, i;
    while (n < BURST && (more = fgets(line, sizeof line, stdin) != NULL)) {
      if (read_tuple(line, &keys[n])) {
        ++n;
      } else {
        fprintf(stderr, "no five-tuple: %s", line);
        bad = 1;
      }
    }
    sluice_acl_classify(acl, keys, n, matches);
    for (i = 0; i < n; ++i) {
      sluice_rule *rule = matches[i].rule != 0 ? sluice_acl_rule(acl, matches[i].rule, NULL) : NULL;
      printf("%s", action_name(matches[i].action));
      if (rule != NULL) printf("  rule %" PRIu32 " at %s:%" PRIu32 ": %s", matches[i].rule, rule->file, rule->line, rule->text);
      printf("\n");
      sluice_rule_free(rule);
    }
  }
  sluice_acl_free(acl);
  return bad;
}
