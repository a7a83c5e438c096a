// Wrong graphs of the product's own elements, and exactly what is said about each: arguments, ports, push and pull,
// fields, patterns, routes, names, scripts. What is wrong with the language itself is in graph/click/click_errors_test.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "elements/register_all.h"
#include "graph/click/syntax.h"
#include "graph/router.h"

namespace sluice {
namespace {

struct WrongGraph {
  const char* name;
  const char* text;
  const char* rendered;
};

const WrongGraph kWrongGraphs[] = {
    {"MissingArgument", "in :: FromDump() -> Discard;\n",
     "test.click:1:16: error: FILE is missing\n"
     "  in :: FromDump() -> Discard;\n"
     "                 ^\n"
     "  expected: FILE: a file name\n"
     "error: 1 error in test.click\n"},
    {"TooManyArguments", "Idle -> Paint(1, 2, 3) -> Discard;\n",
     "test.click:1:21: error: too many arguments, the last one is ANNO\n"
     "  Idle -> Paint(1, 2, 3) -> Discard;\n"
     "                      ^\n"
     "  expected: no more arguments\n"
     "error: 1 error in test.click\n"},
    {"ANumberThatIsNone", "Idle -> Paint(red) -> Discard;\n",
     "test.click:1:15: error: COLOR: 'red' is not a number\n"
     "  Idle -> Paint(red) -> Discard;\n"
     "                ^~~\n"
     "  expected: a whole number from 0 to 255\n"
     "error: 1 error in test.click\n"},
    {"ANumberOutOfRange", "Idle -> Paint(256) -> Discard;\n",
     "test.click:1:15: error: COLOR: '256' is out of range\n"
     "  Idle -> Paint(256) -> Discard;\n"
     "                ^~~\n"
     "  expected: a whole number from 0 to 255\n"
     "error: 1 error in test.click\n"},
    {"AUnknownKeyword", "FromDump(a.pcap, LIMITS 5) -> Discard;\n",
     "test.click:1:18: error: unknown keyword 'LIMITS'\n"
     "  FromDump(a.pcap, LIMITS 5) -> Discard;\n"
     "                   ^~~~~~\n"
     "  help: did you mean 'LIMIT'?\n"
     "error: 1 error in test.click\n"},
    {"AKeywordTwice", "InfiniteSource(LIMIT 5, LIMIT 6) -> Discard;\n",
     "test.click:1:25: error: LIMIT is given twice\n"
     "  InfiniteSource(LIMIT 5, LIMIT 6) -> Discard;\n"
     "                          ^~~~~\n"
     "  help: remove one of them\n"
     "error: 1 error in test.click\n"},
    {"ATruthThatIsNone", "InfiniteSource(STOP maybe) -> Discard;\n",
     "test.click:1:21: error: STOP: 'maybe' is neither true nor false\n"
     "  InfiniteSource(STOP maybe) -> Discard;\n"
     "                      ^~~~~\n"
     "  expected: true or false\n"
     "error: 1 error in test.click\n"},
    {"ARateThatIsNone", "Idle -> Queue -> BandwidthShaper(10Mbit) -> Discard;\n",
     "test.click:1:34: error: RATE: '10Mbit' is not a rate\n"
     "  Idle -> Queue -> BandwidthShaper(10Mbit) -> Discard;\n"
     "                                   ^~~~~~\n"
     "  expected: a rate such as 10Mbps from 0 to 1000000000000 bytes per second (bytes per second without a unit)\n"
     "error: 1 error in test.click\n"},
    {"ATimeThatIsNone", "Idle -> Queue -> TimedSink(soon);\n",
     "test.click:1:28: error: INTERVAL: 'soon' is not a time\n"
     "  Idle -> Queue -> TimedSink(soon);\n"
     "                             ^~~~\n"
     "  expected: a time such as 10ms from 1e-09 to 1000000 seconds (seconds without a unit)\n"
     "error: 1 error in test.click\n"},
    {"AMacThatIsNone", "Idle -> EtherRewrite(02:00:00:00:00, 02:00:00:00:00:02) -> Discard;\n",
     "test.click:1:22: error: SRC: '02:00:00:00:00' is not a MAC address\n"
     "  Idle -> EtherRewrite(02:00:00:00:00, 02:00:00:00:00:02) -> Discard;\n"
     "                       ^~~~~~~~~~~~~~\n"
     "  expected: a MAC address such as 02:00:00:00:00:01\n"
     "error: 1 error in test.click\n"},
    {"AChoiceThatIsNone", "Idle -> IPLookup(10.0.0.0/8 0, ALGORITHM trei) -> Discard;\n",
     "test.click:1:42: error: ALGORITHM: 'trei' is not a choice\n"
     "  Idle -> IPLookup(10.0.0.0/8 0, ALGORITHM trei) -> Discard;\n"
     "                                           ^~~~\n"
     "  expected: one of dir24, sail, poptrie, trie, linear, bloom, auto, auto-gpu\n"
     "  help: did you mean 'trie'?\n"
     "error: 1 error in test.click\n"},
    {"TextThatIsMoreThanAWord", "Message(two words);\n",
     "test.click:1:9: error: MESSAGE: 'two words' is more than one word; put it between double quotes\n"
     "  Message(two words);\n"
     "          ^~~~~~~~~\n"
     "  expected: a text\n"
     "error: 1 error in test.click\n"},
    {"HexadecimalDataWithoutAnEnd", "InfiniteSource(DATA \\<00 01) -> Discard;\n",
     "test.click:1:21: error: DATA: the hex data is not closed\n"
     "  InfiniteSource(DATA \\<00 01) -> Discard;\n"
     "                      ^\n"
     "  expected: pairs of hexadecimal digits: \\<48 45 4c>\n"
     "error: 1 error in test.click\n"},
    {"BothOfTwoArguments", "Idle -> Queue -> RatedUnqueue(5, BURST_SIZE 2, BURST_DURATION 1s) -> Discard;\n",
     "test.click:1:45: error: both BURST_DURATION and BURST_SIZE are given\n"
     "  Idle -> Queue -> RatedUnqueue(5, BURST_SIZE 2, BURST_DURATION 1s) -> Discard;\n"
     "                                              ^\n"
     "error: 1 error in test.click\n"},
    {"AnOutputThatIsNotThere", "p :: Paint(1); Idle -> p -> Discard; p[1] -> Discard;\n",
     "test.click:1:43: error: 'p' has no output 1\n"
     "  p :: Paint(1); Idle -> p -> Discard; p[1] -> Discard;\n"
     "                                            ^~\n"
     "  expected: Paint has 1 output\n"
     "error: 1 error in test.click\n"},
    {"AnInputThatIsNotThere", "Idle -> [1] Paint(1) -> Discard;\n",
     "test.click:1:6: error: 'Paint@2' has no input 1\n"
     "  Idle -> [1] Paint(1) -> Discard;\n"
     "       ^~\n"
     "  expected: Paint has 1 input\n"
     "test.click:1:13: error: input 0 of 'Paint@2' (Paint) is not connected\n"
     "  Idle -> [1] Paint(1) -> Discard;\n"
     "              ^~~~~~~\n"
     "  help: connect something to it, or Idle\n"
     "error: 2 errors in test.click\n"},
    {"AnOutputThatIsNotConnected", "Idle -> Counter;\n",
     "test.click:1:9: error: output 0 of 'Counter@2' (Counter) is not connected\n"
     "  Idle -> Counter;\n"
     "          ^~~~~~~~\n"
     "  help: connect it to Discard to drop its packets\n"
     "error: 1 error in test.click\n"},
    {"AnInputThatIsNotConnected", "Paint(1) -> Discard;\n",
     "test.click:1:1: error: input 0 of 'Paint@1' (Paint) is not connected\n"
     "  Paint(1) -> Discard;\n"
     "  ^~~~~~~\n"
     "  help: connect something to it, or Idle\n"
     "error: 1 error in test.click\n"},
    {"AnOutputTwice", "i :: InfiniteSource; i -> Discard; i -> Counter -> Discard;\n",
     "test.click:1:38: error: output 0 of 'i' is connected twice: to 'Discard@2' and to 'Counter@3'\n"
     "  i :: InfiniteSource; i -> Discard; i -> Counter -> Discard;\n"
     "                                       ^~\n"
     "  help: put a Tee between them to send each packet both ways, or a Classifier to choose\n"
     "error: 1 error in test.click\n"},
    {"AnOutputOfAClassifier", "c :: Classifier(12/0800, -); Idle -> c -> Discard;\n",
     "test.click:1:1: error: output 1 of 'c' (Classifier) is not connected\n"
     "  c :: Classifier(12/0800, -); Idle -> c -> Discard;\n"
     "  ^\n"
     "  help: connect it to Discard to drop its packets\n"
     "error: 1 error in test.click\n"},
    {"ClassThatIsNotHere", "Idle -> Qeueu -> Discard;\n",
     "test.click:1:9: error: element 'Qeueu' is not declared\n"
     "  Idle -> Qeueu -> Discard;\n"
     "          ^~~~~\n"
     "  expected: an element that is declared before, or a class\n"
     "  help: did you mean 'Queue'?\n"
     "error: 1 error in test.click\n"},
    {"PushMeetsPull", "Idle -> t :: Tee(1) -> RatedUnqueue(5) -> Discard;\n",
     "test.click:1:21: error: push output 0 of 't' and pull input 0 of 'RatedUnqueue@3' meet\n"
     "  Idle -> t :: Tee(1) -> RatedUnqueue(5) -> Discard;\n"
     "                      ^~\n"
     "  help: put a Queue between them\n"
     "error: 1 error in test.click\n"},
    {"PullMeetsPush", "Idle -> Queue -> Tee(2) -> Discard;\n",
     "test.click:1:15: error: push input 0 of 'Tee@3' and pull output 0 of 'Queue@2' meet\n"
     "  Idle -> Queue -> Tee(2) -> Discard;\n"
     "                ^~\n"
     "  help: put an Unqueue between them\n"
     "test.click:1:18: error: output 1 of 'Tee@3' (Tee) is not connected\n"
     "  Idle -> Queue -> Tee(2) -> Discard;\n"
     "                   ^~~~~\n"
     "  help: connect it to Discard to drop its packets\n"
     "error: 2 errors in test.click\n"},
    {"PullInputTwice", "a :: Queue; b :: Queue; u :: Unqueue; Idle -> a -> u -> Discard; Idle -> b -> u;\n",
     "test.click:1:76: error: pull input 0 of 'u' is connected twice: to 'a' and to 'b'\n  a :: Queue; b :: Queue; u "
     ":: Unqueue; Idle -> a -> u -> Discard; Idle -> b -> u;\n                                                         "
     "                    ^~\n  help: put a RoundRobinSched or PrioSched between them to choose the input\nerror: 1 "
     "error in test.click\n"},
    {"PushThroughAgnosticPorts", "Idle -> t :: Tee(1) -> Counter -> Paint(1) -> u :: Unqueue -> Discard;\n",
     "test.click:1:32: error: push output 0 of 't' and pull input 0 of 'u' meet\n"
     "  Idle -> t :: Tee(1) -> Counter -> Paint(1) -> u :: Unqueue -> Discard;\n"
     "                                 ^~\n"
     "  help: put a Queue between them\n"
     "error: 1 error in test.click\n"},
    {"FilterBeforeHeaders", "FromDump(a.pcap) -> IPFilter(allow all) -> Discard;\n",
     "test.click:1:21: error: IPFilter reads the packet's key, which nothing before it writes\n"
     "  FromDump(a.pcap) -> IPFilter(allow all) -> Discard;\n"
     "                      ^~~~~~~~~~\n"
     "  help: put CheckIPHeader or IPInput before it\n"
     "error: 1 error in test.click\n"},
    {"ClassifierWithoutAnOffset", "Idle -> Classifier(x/0800) -> Discard;\n",
     "test.click:1:20: error: 'x/0800' does not start with an offset and '/'\n"
     "  Idle -> Classifier(x/0800) -> Discard;\n"
     "                     ^~~~~~\n"
     "  expected: OFFSET/VALUE[%MASK] with hexadecimal digits, such as 12/0800\n"
     "error: 1 error in test.click\n"},
    {"ClassifierWithOddDigits", "Idle -> Classifier(12/080) -> Discard;\n",
     "test.click:1:20: error: '080' has an odd number of digits\n"
     "  Idle -> Classifier(12/080) -> Discard;\n"
     "                     ^~~~~~\n"
     "  expected: OFFSET/VALUE[%MASK] with hexadecimal digits, such as 12/0800\n"
     "error: 1 error in test.click\n"},
    {"ClassifierWithAnotherMask", "Idle -> Classifier(12/0800%ff) -> Discard;\n",
     "test.click:1:20: error: the mask 'ff' has 2 digits and the value '0800' has 4\n"
     "  Idle -> Classifier(12/0800%ff) -> Discard;\n"
     "                     ^~~~~~~~~~\n"
     "  expected: OFFSET/VALUE[%MASK] with hexadecimal digits, such as 12/0800\n"
     "error: 1 error in test.click\n"},
    {"ClassifierWithABadDigit", "Idle -> Classifier(12/08zz) -> Discard;\n",
     "test.click:1:20: error: 'z' is not a hexadecimal digit or '?'\n"
     "  Idle -> Classifier(12/08zz) -> Discard;\n"
     "                     ^~~~~~~\n"
     "  expected: OFFSET/VALUE[%MASK] with hexadecimal digits, such as 12/0800\n"
     "error: 1 error in test.click\n"},
    {"FilterWithoutAnAction", "Idle -> IPFilter(alow tcp) -> Discard;\n",
     "test.click:1:18: error: 'alow' is not an action\n"
     "  Idle -> IPFilter(alow tcp) -> Discard;\n"
     "                   ^~~~\n"
     "  expected: allow, deny, or an output from 0 to 254, and then a pattern\n"
     "  help: did you mean 'allow'?\n"
     "error: 1 error in test.click\n"},
    {"FilterWithoutAPattern", "Idle -> IPFilter(allow) -> Discard;\n",
     "test.click:1:23: error: the pattern is empty\n"
     "  Idle -> IPFilter(allow) -> Discard;\n"
     "                        ^\n"
     "  expected: a pattern, or - for all packets\n"
     "error: 1 error in test.click\n"},
    {"PatternWithAnUnknownWord", "Idle -> IPClassifier(scr host 10.0.0.1) -> Discard;\n",
     "test.click:1:22: error: 'scr' is not a primitive\n"
     "  Idle -> IPClassifier(scr host 10.0.0.1) -> Discard;\n"
     "                       ^~~\n"
     "  expected: src, dst, host, net, port, ip ..., tcp ..., icmp type, ip[P:L] and the like\n"
     "error: 1 error in test.click\n"},
    {"PatternWithoutItsValue", "Idle -> IPClassifier(src port) -> Discard;\n",
     "test.click:1:30: error: the pattern ends where a value should be\n"
     "  Idle -> IPClassifier(src port) -> Discard;\n"
     "                               ^\n"
     "  expected: a value of what precedes it\n"
     "error: 1 error in test.click\n"},
    {"PatternWithABadAddress", "Idle -> IPClassifier(src host 10.0.0.256) -> Discard;\n",
     "test.click:1:31: error: '10.0.0.256' is not an address\n"
     "  Idle -> IPClassifier(src host 10.0.0.256) -> Discard;\n"
     "                                ^~~~~~~~~~\n"
     "  expected: 10.0.0.1 or 2001:db8::1\n"
     "error: 1 error in test.click\n"},
    {"PatternWithABadPort", "Idle -> IPClassifier(dst port 65536) -> Discard;\n",
     "test.click:1:31: error: '65536' is not a value of this field\n"
     "  Idle -> IPClassifier(dst port 65536) -> Discard;\n"
     "                                ^~~~~\n"
     "  expected: a number, 0..65535, or a name\n"
     "error: 1 error in test.click\n"},
    {"PatternWithABadName", "Idle -> IPClassifier(dst port htpp) -> Discard;\n",
     "test.click:1:31: error: 'htpp' is not a value of this field\n"
     "  Idle -> IPClassifier(dst port htpp) -> Discard;\n"
     "                                ^~~~\n"
     "  expected: a number, 0..65535, or a name\n"
     "error: 1 error in test.click\n"},
    {"PatternWithoutAParenthesis", "Idle -> IPClassifier(\"(tcp or udp\") -> Discard;\n",
     "test.click:1:22: error: '\"' is not a primitive\n"
     "  Idle -> IPClassifier(\"(tcp or udp\") -> Discard;\n"
     "                       ^\n"
     "  expected: src, dst, host, net, port, ip ..., tcp ..., icmp type, ip[P:L] and the like\n"
     "error: 1 error in test.click\n"},
    {"PatternWithTwoDirections", "Idle -> IPClassifier(src dst host 10.0.0.1) -> Discard;\n",
     "test.click:1:26: error: there are two directions\n"
     "  Idle -> IPClassifier(src dst host 10.0.0.1) -> Discard;\n"
     "                           ^~~\n"
     "  expected: src, dst, src or dst, src and dst\n"
     "error: 1 error in test.click\n"},
    {"PatternWithPortsOfIcmp", "Idle -> IPClassifier(icmp port 5) -> Discard;\n",
     "test.click:1:32: error: protocol 1 has no ports\n"
     "  Idle -> IPClassifier(icmp port 5) -> Discard;\n"
     "                                 ^\n"
     "  expected: tcp, udp, sctp, dccp or udplite\n"
     "error: 1 error in test.click\n"},
    {"PatternWithAnEndTooEarly", "Idle -> IPClassifier(tcp and) -> Discard;\n",
     "test.click:1:29: error: the pattern ends where a primitive should be\n"
     "  Idle -> IPClassifier(tcp and) -> Discard;\n"
     "                              ^\n"
     "  expected: src, dst, host, net, port, ip ..., tcp ..., icmp type, ip[P:L] and the like\n"
     "error: 1 error in test.click\n"},
    {"PatternWithABadFlag", "Idle -> IPClassifier(tcp opt sin) -> Discard;\n",
     "test.click:1:30: error: 'sin' is not a TCP flag\n"
     "  Idle -> IPClassifier(tcp opt sin) -> Discard;\n"
     "                               ^~~\n"
     "  expected: syn, ack, fin, rst, psh, urg\n"
     "  help: did you mean 'FIN'?\n"
     "error: 1 error in test.click\n"},
    {"FilterOfAFileThatIsNotThere", "Idle -> IPFilter(file /no/such/rules) -> Discard;\n",
     "test.click:1:23: error: '/no/such/rules' is not a file that can be read\n"
     "  Idle -> IPFilter(file /no/such/rules) -> Discard;\n"
     "                        ^~~~~~~~~~~~~~\n"
     "error: 1 error in test.click\n"},
    {"FilterOfAFileWithoutAName", "Idle -> IPFilter(file) -> Discard;\n",
     "test.click:1:18: error: 'file' without one name\n"
     "  Idle -> IPFilter(file) -> Discard;\n"
     "                   ^~~~\n"
     "  expected: file NAME\n"
     "error: 1 error in test.click\n"},
    {"ARouteOfOneWord", "Idle -> IPLookup(10.0.0.0/8) -> Discard;\n",
     "test.click:1:18: error: a route has 2 or 3 words, not 1\n"
     "  Idle -> IPLookup(10.0.0.0/8) -> Discard;\n"
     "                   ^~~~~~~~~~\n"
     "  expected: ADDRESS/MASK [GATEWAY] OUTPUT, such as 10.0.0.0/8 192.0.2.1 1\n"
     "error: 1 error in test.click\n"},
    {"ARouteToABadPrefix", "Idle -> IPLookup(10.0.0.0/33 0) -> Discard;\n",
     "test.click:1:18: error: '10.0.0.0/33' is not an IPv4 prefix\n"
     "  Idle -> IPLookup(10.0.0.0/33 0) -> Discard;\n"
     "                   ^~~~~~~~~~~\n"
     "  expected: ADDRESS/MASK [GATEWAY] OUTPUT, such as 10.0.0.0/8 192.0.2.1 1\n"
     "error: 1 error in test.click\n"},
    {"ARouteByABadGateway", "Idle -> IPLookup(10.0.0.0/8 gate 0) -> Discard;\n",
     "test.click:1:29: error: 'gate' is not an IPv4 address\n"
     "  Idle -> IPLookup(10.0.0.0/8 gate 0) -> Discard;\n"
     "                              ^~~~\n"
     "  expected: ADDRESS/MASK [GATEWAY] OUTPUT, such as 10.0.0.0/8 192.0.2.1 1\n"
     "error: 1 error in test.click\n"},
    {"ARouteToABadOutput", "Idle -> IPLookup(10.0.0.0/8 out) -> Discard;\n",
     "test.click:1:29: error: 'out' is not an output from 0 to 254\n"
     "  Idle -> IPLookup(10.0.0.0/8 out) -> Discard;\n"
     "                              ^~~\n"
     "  expected: ADDRESS/MASK [GATEWAY] OUTPUT, such as 10.0.0.0/8 192.0.2.1 1\n"
     "error: 1 error in test.click\n"},
    {"ANameWithoutAnAddress", "AddressInfo(lan);\n",
     "test.click:1:13: error: 'lan' has no address\n"
     "  AddressInfo(lan);\n"
     "              ^~~\n"
     "  expected: NAME ADDRESS [ADDRESS...]\n"
     "error: 1 error in test.click\n"},
    {"ANameForABadAddress", "AddressInfo(lan 10.0.0.1 02:00);\n",
     "test.click:1:26: error: '02:00' is not an address\n"
     "  AddressInfo(lan 10.0.0.1 02:00);\n"
     "                           ^~~~~\n"
     "  expected: IPv4, IPv6 or MAC addresses, or prefixes\n"
     "error: 1 error in test.click\n"},
    {"ANameTwice", "AddressInfo(lan 10.0.0.1, lan 10.0.0.2);\n",
     "test.click:1:27: error: 'lan' has its addresses already\n"
     "  AddressInfo(lan 10.0.0.1, lan 10.0.0.2);\n"
     "                            ^~~\n"
     "  expected: each name once\n"
     "error: 1 error in test.click\n"},
    {"ANameThatBeginsWithADigit", "AddressInfo(1lan 10.0.0.1);\n",
     "test.click:1:13: error: '1lan' is not a name\n"
     "  AddressInfo(1lan 10.0.0.1);\n"
     "              ^~~~\n"
     "  expected: letters, digits and '_ @ .', with a letter first\n"
     "error: 1 error in test.click\n"},
    {"AnInstructionThatIsNone", "Script(prnt x);\n",
     "test.click:1:8: error: 'prnt' is not an instruction\n"
     "  Script(prnt x);\n"
     "         ^~~~\n"
     "  help: did you mean 'print'?\n"
     "error: 1 error in test.click\n"},
    {"ALabelThatIsNotThere", "Script(goto nowhere);\n",
     "test.click:1:8: error: there is no label 'nowhere'\n"
     "  Script(goto nowhere);\n"
     "         ^~~~~~~~~~~~\n"
     "error: 1 error in test.click\n"},
    {"ALabelTwice", "Script(label a, label a);\n",
     "test.click:1:17: error: label 'a' is there twice\n"
     "  Script(label a, label a);\n"
     "                  ^~~~~~~\n"
     "error: 1 error in test.click\n"},
    {"AWaitInAPassiveScript", "Script(TYPE PASSIVE, wait 1s);\n",
     "test.click:1:22: error: 'wait' cannot be used in a script of this type: its caller waits for the end\n"
     "  Script(TYPE PASSIVE, wait 1s);\n"
     "                       ^~~~~~~\n"
     "error: 1 error in test.click\n"},
    {"AScriptOfNoType", "Script(TYPE LOUD);\n",
     "test.click:1:13: error: 'LOUD' is not a type of script\n"
     "  Script(TYPE LOUD);\n"
     "              ^~~~\n"
     "  expected: ACTIVE, PASSIVE, DRIVER, PACKET, PROXY or SIGNAL\n"
     "error: 1 error in test.click\n"},
    {"ASignalThatIsNone", "Script(TYPE SIGNAL FOO);\n",
     "test.click:1:13: error: 'FOO' is not a signal\n"
     "  Script(TYPE SIGNAL FOO);\n"
     "              ^~~~~~~~~~\n"
     "error: 1 error in test.click\n"},
    {"ACountWithoutAHandler", "Idle -> Counter(COUNT_CALL x) -> Discard;\n",
     "test.click:1:28: error: 'x' is not a count and a handler\n"
     "  Idle -> Counter(COUNT_CALL x) -> Discard;\n"
     "                             ^\n"
     "  expected: N HANDLER [VALUE]\n"
     "error: 1 error in test.click\n"},
    {"AFieldThatIsNone", "FromIPSummaryDump(a, FIELDS ip_scr) -> Discard;\n",
     "test.click:1:29: error: there is no field 'ip_scr'\n"
     "  FromIPSummaryDump(a, FIELDS ip_scr) -> Discard;\n"
     "                              ^~~~~~\n"
     "  help: did you mean ip_src?\n"
     "error: 1 error in test.click\n"},
    {"ADumpOfNothing", "FromIPSummaryDump() -> Discard;\n",
     "test.click:1:19: error: give either a file or DATA\n  FromIPSummaryDump() -> Discard;\n                    "
     "^\nerror: 1 error in test.click\n"},
    {"ABatchTooLarge", "Idle -> MinBatch(9000) -> Discard;\n",
     "test.click:1:18: error: BURST: '9000' is out of range\n"
     "  Idle -> MinBatch(9000) -> Discard;\n"
     "                   ^~~~\n"
     "  expected: a whole number from 1 to 8192 (packets)\n"
     "error: 1 error in test.click\n"},
    {"ANegativeTimer", "Idle -> MinBatch(32, TIMER -1) -> Discard;\n",
     "test.click:1:28: error: TIMER: '-1' is negative\n"
     "  Idle -> MinBatch(32, TIMER -1) -> Discard;\n"
     "                             ^~\n"
     "  expected: a whole number from 0 to 60000000 (microseconds)\n"
     "error: 1 error in test.click\n"},
    {"APaintOfAnotherByte", "Idle -> Paint(1, ANNO 17) -> Discard;\n",
     "test.click:1:23: error: a packet has one paint; ANNO cannot name another byte\n"
     "  Idle -> Paint(1, ANNO 17) -> Discard;\n"
     "                        ^~\n"
     "  help: leave ANNO out\n"
     "error: 1 error in test.click\n"},
};

class WrongGraphTest : public ::testing::TestWithParam<WrongGraph> {};

TEST_P(WrongGraphTest, IsRefusedWithExactlyThisMessage) {
  static const Registry registry = [] {
    Registry all;
    register_elements(all);
    return all;
  }();
  ParseOptions options;
  options.known_classes = registry.names();
  const std::string text = GetParam().text;
  auto graph = parse_click(text, "test.click", options);
  if (!graph.ok()) {
    EXPECT_EQ(to_string(graph.error()), GetParam().rendered);
    return;
  }
  const auto router = build_router(*graph, registry, text);
  ASSERT_FALSE(router.ok()) << text;
  EXPECT_EQ(to_string(router.error()), GetParam().rendered);
}

INSTANTIATE_TEST_SUITE_P(Elements, WrongGraphTest, ::testing::ValuesIn(kWrongGraphs),
                         [](const auto& param) { return std::string(param.param.name); });

// Each class is misspelled in every way in one configuration, so that the unknown names are near one another as well.
TEST(WrongGraphs, SuggestNamesThatExist) {
  Registry registry;
  register_elements(registry);
  ParseOptions options;
  options.known_classes = registry.names();
  std::vector<std::string> names = registry.names();
  names.insert(names.end(), {"SetIPChecksum", "SetUDPChecksum", "Mine"});
  std::vector<std::string> wrong;
  for (const std::string& name : names) {
    for (size_t at = 0; at < name.size(); ++at) {
      std::string one = name, other = name, third = name;
      wrong.push_back(one.erase(at, 1));
      wrong.push_back(other.insert(at, 1, name[at]));
      if (at != 0) {
        std::swap(third[at], third[at - 1]);
        wrong.push_back(third);
      }
    }
  }
  std::erase_if(wrong, [&](const std::string& w) { return registry.find(w) != nullptr || w.empty(); });
  std::string before;
  size_t suggested = 0;
  // Some at a time: only so many errors are told.
  for (size_t at = 0; at < wrong.size(); at += 8) {
    std::string text = "elementclass Mine { -> }\nmine :: Mine;\n";
    for (size_t i = at; i < std::min(at + 8, wrong.size()); ++i) {
      // As an element without a declaration, and as a class.
      text += "Idle -> " + wrong[i] + " -> Discard;\nIdle -> " + wrong[i] + "(1) -> Discard;\n";
    }
    const auto graph = parse_click(text, "test.click", options);
    ASSERT_FALSE(graph.ok());
    for (const Diagnostic& d : graph.error().diagnostics) {
      const std::string mean = "did you mean '";
      if (!d.suggestion.starts_with(mean)) continue;
      const std::string meant = d.suggestion.substr(mean.size(), d.suggestion.find('\'', mean.size()) - mean.size());
      ++suggested;
      EXPECT_TRUE(registry.find(meant) != nullptr || meant == "Mine" || meant == "mine")
          << d.message << ": " << d.suggestion;
    }
  }
  EXPECT_GT(suggested, wrong.size() / 2);
}

TEST(WrongGraphs, AtLeastSixtyAreHeld) {
  EXPECT_GE(std::size(kWrongGraphs), 60u);
}

}  // namespace
}  // namespace sluice
