/* A router in process: frames go into a graph, and come out rewritten or with the reason for their drop.
 *
 *   cc router.c $(pkg-config --cflags --libs sluice) -o router
 *   ./router router.click
 *
 * The graph is that of `sluice run`; the program gives and takes the frames that its captures would. */
#include <inttypes.h>
#include <sluice/sluice.h>
#include <stdio.h>
#include <string.h>

#define FRAMES 5
#define FRAME_BYTES 60

/* A UDP or TCP packet without payload from 10.9.9.9 to `dst`. */
static void make_frame(uint8_t *frame, uint8_t protocol, uint32_t dst, uint16_t port, uint8_t ttl) {
  uint32_t sum = 0;
  size_t i;
  uint8_t *ip = frame + 14;
  memset(frame, 0, FRAME_BYTES);
  frame[5] = 2;    /* to 00:00:00:00:00:02 */
  frame[11] = 1;   /* from 00:00:00:00:00:01 */
  frame[12] = 8;   /* IPv4 */
  ip[0] = 0x45;
  ip[3] = FRAME_BYTES - 14;
  ip[8] = ttl;
  ip[9] = protocol;
  ip[12] = 10, ip[13] = 9, ip[14] = 9, ip[15] = 9;
  for (i = 0; i < 4; ++i) ip[16 + i] = (uint8_t)(dst >> (24 - 8 * i));
  for (i = 0; i < 20; i += 2) sum += (uint32_t)(ip[i] << 8 | ip[i + 1]);
  sum = (sum & 0xffff) + (sum >> 16);
  sum = ~((sum & 0xffff) + (sum >> 16)) & 0xffff;
  ip[10] = (uint8_t)(sum >> 8);
  ip[11] = (uint8_t)sum;
  ip[20] = 0x10;
  ip[22] = (uint8_t)(port >> 8);
  ip[23] = (uint8_t)port;
  if (protocol == 6) ip[32] = 0x50;
  if (protocol == 17) ip[25] = FRAME_BYTES - 34;
}

int main(int argc, char **argv) {
  uint8_t bytes[FRAMES][FRAME_BYTES];
  sluice_frame frames[FRAMES];
  sluice_packet packets[FRAMES];
  sluice_fate fates[FRAMES];
  sluice_graph_counts counts;
  sluice_errors *errors = NULL;
  sluice_graph *graph;
  size_t i, n, taken = 0;
  if (argc != 2) {
    fprintf(stderr, "usage: %s GRAPH\n", argv[0]);
    return 2;
  }
  graph = sluice_graph_open(argv[1], NULL, &errors);
  if (graph == NULL) {
    fputs(sluice_errors_text(errors), stderr);
    sluice_errors_free(errors);
    return 1;
  }
  make_frame(bytes[0], 6, 0xc0000207, 80, 64);  /* permitted and routed */
  make_frame(bytes[1], 6, 0xc0000207, 22, 64);  /* denied */
  make_frame(bytes[2], 17, 0xc6336401, 53, 64); /* permitted and routed elsewhere */
  make_frame(bytes[3], 17, 0xcb007101, 53, 64); /* no route */
  make_frame(bytes[4], 17, 0xc6336401, 53, 1);  /* its time to live is over */
  memset(frames, 0, sizeof frames);
  for (i = 0; i < FRAMES; ++i) {
    frames[i].data = bytes[i];
    frames[i].captured = FRAME_BYTES;
  }
  while (taken < FRAMES)
    taken += sluice_graph_push(graph, sluice_graph_input(graph, "in"), frames + taken, FRAMES - taken);
  if (sluice_graph_wait(graph, UINT64_C(10000000000)) != 0) {
    fprintf(stderr, "no answer within ten seconds\n");
    return 1;
  }
  n = sluice_graph_take(graph, packets, FRAMES);
  for (i = 0; i < n; ++i)
    printf("out   %" PRIu32 " bytes to %u.%u.%u.%u, TTL %u\n", packets[i].captured, packets[i].data[30],
           packets[i].data[31], packets[i].data[32], packets[i].data[33], packets[i].data[22]);
  n = sluice_graph_fates(graph, fates, FRAMES);
  for (i = 0; i < n; ++i) {
    if (fates[i].reason != 0)
      printf("drop  packet %" PRIu64 ": %s at %s\n", fates[i].number, sluice_drop_reason(fates[i].reason),
             sluice_graph_element(graph, fates[i].element));
  }
  counts.size = sizeof counts;
  if (sluice_graph_finish(graph, &counts, &errors) != 0) {
    fputs(sluice_errors_text(errors), stderr);
    sluice_errors_free(errors);
    return 1;
  }
  printf("%" PRIu64 " in + %" PRIu64 " made = %" PRIu64 " out + %" PRIu64 " dropped\n", counts.pushed, counts.made,
         counts.out, counts.dropped);
  sluice_graph_free(graph);
  return 0;
}
