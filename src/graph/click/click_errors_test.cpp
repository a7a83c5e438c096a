// Every wrong configuration gets exactly these findings: place, caret, what was expected, and a suggestion.
#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <string>

#include "graph/click/syntax.h"

namespace sluice {
namespace {

struct WrongConfiguration {
  const char* name;
  const char* text;
  const char* rendered;
};

const WrongConfiguration kWrong[] = {
    {"UndeclaredElementSuggestsADeclaredOne",
     "counter :: Counter;\n"
     "Idle -> countr -> Discard;\n",
     "test.click:2:9: error: element 'countr' is not declared\n"
     "  Idle -> countr -> Discard;\n"
     "          ^~~~~~\n"
     "  expected: an element that is declared before, or a class\n"
     "  help: did you mean 'counter'?\n"
     "error: 1 error in test.click\n"},
    {"UndeclaredClassSuggestsAKnownOne", "Idle -> Couner -> Discard;\n",
     "test.click:1:9: error: element 'Couner' is not declared\n"
     "  Idle -> Couner -> Discard;\n"
     "          ^~~~~~\n"
     "  expected: an element that is declared before, or a class\n"
     "  help: did you mean 'Counter'?\n"
     "error: 1 error in test.click\n"},
    {"UnknownClassInADeclaration",
     "c :: Disard(1);\n"
     "Idle -> c;\n",
     "test.click:1:6: error: unknown element class 'Disard'\n"
     "  c :: Disard(1);\n"
     "       ^~~~~~\n"
     "  help: did you mean 'Discard'?\n"
     "error: 1 error in test.click\n"},
    {"ClassDefinedAfterItsUse",
     "Idle -> Mine -> Discard;\n"
     "elementclass Mine { -> Counter -> }\n",
     "test.click:1:9: error: element 'Mine' is not declared\n"
     "  Idle -> Mine -> Discard;\n"
     "          ^~~~\n"
     "  expected: an element that is declared before, or a class\n"
     "  help: it is defined later, on line 2; define it before its use\n"
     "error: 1 error in test.click\n"},
    {"ElementDeclaredAfterItsUse",
     "Idle -> q -> Discard;\n"
     "q :: Queue;\n",
     "test.click:1:9: error: element 'q' is not declared\n"
     "  Idle -> q -> Discard;\n"
     "          ^\n"
     "  expected: an element that is declared before, or a class\n"
     "  help: it is declared later, on line 2; declare it before its use\n"
     "error: 1 error in test.click\n"},
    {"ElementclassThatUsesItself",
     "elementclass Loop { input -> Loop -> output }\n"
     "Idle -> Loop -> Discard;\n",
     "test.click:1:30: error: elementclass 'Loop' uses itself\n"
     "  elementclass Loop { input -> Loop -> output }\n"
     "                               ^~~~\n"
     "  expected: a class that is defined before this one\n"
     "error: 1 error in test.click\n"},
    {"ElementDeclaredTwice",
     "c :: Counter;\n"
     "c :: Queue;\n",
     "test.click:2:1: error: element 'c' is declared twice\n"
     "  c :: Queue;\n"
     "  ^\n"
     "  help: the first declaration is on line 1\n"
     "error: 1 error in test.click\n"},
    {"ClassNameUsedForAnElement", "Counter :: Queue;\n",
     "test.click:1:1: error: 'Counter' is the name of a class\n"
     "  Counter :: Queue;\n"
     "  ^~~~~~~\n"
     "  expected: a name for the element\n"
     "error: 1 error in test.click\n"},
    {"ElementNameUsedForAClass",
     "mine :: Counter;\n"
     "elementclass mine { -> Idle -> }\n",
     "test.click:2:14: error: 'mine' is the name of an element\n"
     "  elementclass mine { -> Idle -> }\n"
     "               ^~~~\n"
     "  expected: a name for the class\n"
     "error: 1 error in test.click\n"},
    {"ConfigurationOnAReference",
     "q :: Queue(10);\n"
     "Idle -> q(20) -> Discard;\n",
     "test.click:2:9: error: element 'q' is declared already\n"
     "  Idle -> q(20) -> Discard;\n"
     "          ^\n"
     "  expected: its name alone\n"
     "  help: its configuration belongs to its declaration on line 1\n"
     "error: 1 error in test.click\n"},
    {"InputOutsideACompound", "input -> Discard;\n",
     "test.click:1:1: error: element 'input' is not declared\n"
     "  input -> Discard;\n"
     "  ^~~~~\n"
     "  expected: an element that is declared before, or a class\n"
     "  help: input and output exist inside { } only\n"
     "error: 1 error in test.click\n"},
    {"InputDeclaredInsideACompound", "x :: { input :: Idle -> output };\n",
     "test.click:1:8: error: 'input' is reserved inside a compound\n"
     "  x :: { input :: Idle -> output };\n"
     "         ^~~~~\n"
     "  expected: another name\n"
     "error: 1 error in test.click\n"},
    {"ConnectionIntoInput", "x :: { Idle -> input };\n",
     "test.click:1:16: error: 'input' has no inputs\n"
     "  x :: { Idle -> input };\n"
     "                 ^~~~~\n"
     "  help: connect from it: input -> ...\n"
     "error: 1 error in test.click\n"},
    {"ConnectionOutOfOutput", "x :: { output -> Discard };\n",
     "test.click:1:8: error: 'output' has no outputs\n"
     "  x :: { output -> Discard };\n"
     "         ^~~~~~\n"
     "  help: connect to it: ... -> output\n"
     "error: 1 error in test.click\n"},
    {"MissingClass", "a :: ;\n",
     "test.click:1:6: error: unexpected ';'\n"
     "  a :: ;\n"
     "       ^\n"
     "  expected: the class of the element\n"
     "error: 1 error in test.click\n"},
    {"MissingElementAfterAnArrow", "Idle -> ;\n",
     "test.click:1:9: error: unexpected ';'\n"
     "  Idle -> ;\n"
     "          ^\n"
     "  expected: an element after the arrow\n"
     "error: 1 error in test.click\n"},
    {"ArrowWithoutAnElement", "-> Discard;\n",
     "test.click:1:1: error: unexpected '->'\n"
     "  -> Discard;\n"
     "  ^~\n"
     "  expected: an element before the arrow\n"
     "error: 1 error in test.click\n"},
    {"WrongArrow",
     "a :: Idle;\n"
     "a - > Discard;\n",
     "test.click:2:3: error: unexpected '-'\n"
     "  a - > Discard;\n"
     "    ^\n"
     "  expected: '->', '=>', '::' or ';'\n"
     "  help: connections are written '->'\n"
     "error: 1 error in test.click\n"},
    {"SingleColon", "a : Idle;\n",
     "test.click:1:3: error: unexpected ':'\n"
     "  a : Idle;\n"
     "    ^\n"
     "  expected: '::'\n"
     "  help: declarations are written 'NAME :: CLASS'\n"
     "error: 1 error in test.click\n"},
    {"StrayClosingBrace", "Idle -> Discard; }\n",
     "test.click:1:18: error: unexpected '}'\n"
     "  Idle -> Discard; }\n"
     "                   ^\n"
     "  expected: an element, a class or a statement\n"
     "  help: no '{' is open here\n"
     "error: 1 error in test.click\n"},
    {"StrayClosingParenthesis", "Idle -> Discard );\n",
     "test.click:1:17: error: unexpected ')'\n"
     "  Idle -> Discard );\n"
     "                  ^\n"
     "  expected: '->', '=>', '::' or ';'\n"
     "error: 1 error in test.click\n"},
    {"UnclosedBrace",
     "x :: { input -> output;\n"
     "Idle -> x;\n",
     "test.click:1:6: error: no '}' closes this '{'\n"
     "  x :: { input -> output;\n"
     "       ^\n"
     "  expected: a closing }\n"
     "error: 1 error in test.click\n"},
    {"UnclosedGroup", "Idle -> ( -> Counter -> ; Discard;\n",
     "test.click:1:9: error: no ')' closes this '('\n"
     "  Idle -> ( -> Counter -> ; Discard;\n"
     "          ^\n"
     "  expected: a closing )\n"
     "error: 1 error in test.click\n"},
    {"UnclosedConfiguration",
     "c :: Counter(1;\n"
     "Idle -> c;\n",
     "test.click:1:13: error: no ')' closes this '('\n"
     "  c :: Counter(1;\n"
     "              ^\n"
     "  expected: a closing )\n"
     "error: 1 error in test.click\n"},
    {"UnclosedInnerParenthesis", "c :: Queue(a (b);\n",
     "test.click:1:11: error: no ')' closes this '('\n"
     "  c :: Queue(a (b);\n"
     "            ^\n"
     "  expected: a closing )\n"
     "error: 1 error in test.click\n"},
    {"UnclosedString", "p :: Print(\"hello);\n",
     "test.click:1:12: error: this string does not end\n"
     "  p :: Print(\"hello);\n"
     "             ^\n"
     "  expected: a closing \"\n"
     "error: 1 error in test.click\n"},
    {"UnclosedSingleQuotes", "p :: Print('hello);\n",
     "test.click:1:12: error: this string does not end\n"
     "  p :: Print('hello);\n"
     "             ^\n"
     "  expected: a closing '\n"
     "error: 1 error in test.click\n"},
    {"UnclosedComment", "Idle -> Discard; /* no end\n",
     "test.click:1:18: error: this comment does not end\n"
     "  Idle -> Discard; /* no end\n"
     "                   ^~\n"
     "  expected: */\n"
     "error: 1 error in test.click\n"},
    {"UnclosedCommentInAConfiguration", "p :: Print(1 /* no end);\n",
     "test.click:1:14: error: this comment does not end\n"
     "  p :: Print(1 /* no end);\n"
     "               ^~\n"
     "  expected: */\n"
     "error: 1 error in test.click\n"},
    {"PortsWithoutANumber",
     "t :: Tee;\n"
     "t [x] -> Discard;\n",
     "test.click:2:4: error: port 'x' is not a number\n"
     "  t [x] -> Discard;\n"
     "     ^\n"
     "  expected: a number from 0 to 4095\n"
     "error: 1 error in test.click\n"},
    {"PortTooLarge",
     "t :: Tee;\n"
     "t [70000] -> Discard;\n",
     "test.click:2:4: error: port 70000 is too large\n"
     "  t [70000] -> Discard;\n"
     "     ^~~~~\n"
     "  expected: a number from 0 to 4095\n"
     "error: 1 error in test.click\n"},
    {"EmptyPortRange",
     "t :: Tee;\n"
     "t [3-1] -> Discard;\n",
     "test.click:2:6: error: port range 3-1 is empty\n"
     "  t [3-1] -> Discard;\n"
     "       ^\n"
     "  expected: LOW-HIGH with LOW <= HIGH\n"
     "error: 1 error in test.click\n"},
    {"PortListWithoutABracket",
     "t :: Tee;\n"
     "t [1, 2 -> Discard;\n",
     "test.click:2:9: error: unexpected '->'\n"
     "  t [1, 2 -> Discard;\n"
     "          ^~\n"
     "  expected: ',' or ']' in a list of ports\n"
     "error: 1 error in test.click\n"},
    {"PortsWithTwoDashes",
     "t :: Tee;\n"
     "t [1-2-3] -> Discard;\n",
     "test.click:2:7: error: unexpected '-'\n"
     "  t [1-2-3] -> Discard;\n"
     "        ^\n"
     "  expected: ',' or ']' in a list of ports\n"
     "error: 1 error in test.click\n"},
    {"InputPortsAtTheStart",
     "t :: Tee;\n"
     "[1] t -> Discard;\n",
     "test.click:2:1: error: input ports at the start of a chain\n"
     "  [1] t -> Discard;\n"
     "  ^~~\n"
     "  expected: an arrow before the ports\n"
     "error: 1 error in test.click\n"},
    {"OutputPortsAtTheEnd",
     "t :: Tee;\n"
     "Idle -> t [1];\n",
     "test.click:2:11: error: output ports at the end of a chain\n"
     "  Idle -> t [1];\n"
     "            ^~~\n"
     "  expected: an arrow after the ports\n"
     "error: 1 error in test.click\n"},
    {"PortsBesideNothing",
     "t :: Tee;\n"
     "t -> [1] ;\n",
     "test.click:2:6: error: these ports belong to no element\n"
     "  t -> [1] ;\n"
     "       ^~~\n"
     "  expected: an element beside the ports\n"
     "test.click:2:10: error: unexpected ';'\n"
     "  t -> [1] ;\n"
     "           ^\n"
     "  expected: an element after the arrow\n"
     "error: 2 errors in test.click\n"},
    {"ManyToManyWithAPlainArrow",
     "a, b :: Idle; c, d :: Discard;\n"
     "a, b -> c, d;\n",
     "test.click:2:6: error: '->' cannot join 2 outputs to 2 inputs\n"
     "  a, b -> c, d;\n"
     "       ^~\n"
     "  expected: one output or one input\n"
     "  help: '=>' joins them one by one\n"
     "error: 1 error in test.click\n"},
    {"CountMismatchAtADoubleArrow",
     "t :: Tee; c, d :: Discard;\n"
     "t [0-2] => c, d;\n",
     "test.click:2:9: error: '=>' joins 3 outputs to 2 inputs\n"
     "  t [0-2] => c, d;\n"
     "          ^~\n"
     "  expected: as many outputs as inputs\n"
     "error: 1 error in test.click\n"},
    {"TwoOpenPortLists",
     "t :: Tee; s :: RoundRobinSched;\n"
     "t [0,] => [0,] s;\n",
     "test.click:2:8: error: more than one open list of ports at one arrow\n"
     "  t [0,] => [0,] s;\n"
     "         ^~\n"
     "  expected: at most one list that ends in a comma\n"
     "error: 1 error in test.click\n"},
    {"ArrowAfterTheEndOfAChain", "x :: { Idle -> [0] -> Discard };\n",
     "test.click:1:16: error: these ports belong to no element\n"
     "  x :: { Idle -> [0] -> Discard };\n"
     "                 ^~~\n"
     "  expected: an element beside the ports\n"
     "test.click:1:20: error: unexpected '->'\n"
     "  x :: { Idle -> [0] -> Discard };\n"
     "                     ^~\n"
     "  expected: an element after the arrow\n"
     "error: 2 errors in test.click\n"},
    {"GapInThePortsOfACompound", "x :: { input [1] -> output };\n",
     "test.click:1:6: error: input 0 is not connected inside\n"
     "  x :: { input [1] -> output };\n"
     "       ^\n"
     "  expected: all of input 0 to 1, because 1 is used\n"
     "error: 1 error in test.click\n"},
    {"MissingInputOfACompound",
     "x :: { input -> output };\n"
     "Idle -> [2] x -> Discard;\n",
     "test.click:1:1: error: 'x' has no input 2\n"
     "  x :: { input -> output };\n"
     "  ^\n"
     "  expected: input 0 only\n"
     "error: 1 error in test.click\n"},
    {"MissingOutputOfACompound",
     "x :: { input -> Discard };\n"
     "Idle -> x -> Discard;\n",
     "test.click:1:1: error: 'x' has no output 0\n"
     "  x :: { input -> Discard };\n"
     "  ^\n"
     "  expected: no outputs\n"
     "error: 1 error in test.click\n"},
    {"TooFewArgumentsOfACompound",
     "elementclass P { $a, $b | input -> Queue($a) -> output }\n"
     "Idle -> P(1) -> Discard;\n",
     "test.click:2:11: error: 'P' does not take 1 argument: too few arguments\n"
     "  Idle -> P(1) -> Discard;\n"
     "            ^\n"
     "  expected: ($a, $b)\n"
     "error: 1 error in test.click\n"},
    {"TooManyArgumentsOfACompound", "Idle -> { input -> output }(5) -> Discard;\n",
     "test.click:1:29: error: this compound element does not take 1 argument: too many arguments\n"
     "  Idle -> { input -> output }(5) -> Discard;\n"
     "                              ^\n"
     "  expected: ()\n"
     "error: 1 error in test.click\n"},
    {"MissingKeywordOfACompound",
     "elementclass P { $a, CAP $b | input -> Queue($b) -> output }\n"
     "Idle -> P(1) -> Discard;\n",
     "test.click:2:11: error: 'P' does not take 1 argument: CAP is missing\n"
     "  Idle -> P(1) -> Discard;\n"
     "            ^\n"
     "  expected: ($a, CAP $b)\n"
     "error: 1 error in test.click\n"},
    {"NoOverloadFits",
     "elementclass P { $a | -> Queue($a) -> || $a, $b | -> Queue($b) -> }\n"
     "Idle -> P(1, 2, 3) -> Discard;\n",
     "test.click:2:11: error: 'P' does not take 3 arguments\n"
     "  Idle -> P(1, 2, 3) -> Discard;\n"
     "            ^~~~~~~\n"
     "  expected: ($a) or ($a, $b)\n"
     "error: 1 error in test.click\n"},
    {"FormalTwice", "elementclass P { $a, $a | -> Queue($a) -> }\n",
     "test.click:1:22: error: $a is given twice in the list\n"
     "  elementclass P { $a, $a | -> Queue($a) -> }\n"
     "                       ^~\n"
     "error: 1 error in test.click\n"},
    {"FormalAfterTheRest", "elementclass P { __REST__ $r, $a | -> Queue($a) -> }\n",
     "test.click:1:31: error: nothing can follow __REST__\n"
     "  elementclass P { __REST__ $r, $a | -> Queue($a) -> }\n"
     "                                ^~\n"
     "  help: put __REST__ last\n"
     "error: 1 error in test.click\n"},
    {"FormalWithoutAVariable", "elementclass P { $a, CAP | -> Queue($a) -> }\n",
     "test.click:1:26: error: unexpected '|'\n"
     "  elementclass P { $a, CAP | -> Queue($a) -> }\n"
     "                           ^\n"
     "  expected: a variable: $NAME\n"
     "error: 1 error in test.click\n"},
    {"FormalsWithoutABar", "elementclass P { $a -> Queue($a) -> }\n",
     "test.click:1:21: error: unexpected '->'\n"
     "  elementclass P { $a -> Queue($a) -> }\n"
     "                      ^~\n"
     "  expected: ',' or '|' after a variable\n"
     "error: 1 error in test.click\n"},
    {"UnknownVariable",
     "define($size 10);\n"
     "Idle -> Queue($sise) -> Discard;\n",
     "test.click:2:15: error: unknown variable $sise\n  Idle -> Queue($sise) -> Discard;\n                ^~~~~\n  "
     "expected: a variable of this scope; '$...' between single quotes is left as it is\n  help: did you mean "
     "'$size'?\nerror: 1 error in test.click\n"},
    {"UnknownVariableInABody",
     "elementclass Q { $cap | -> Queue($cpa) -> }\n"
     "Idle -> Q(1) -> Q(2) -> Discard;\n",
     "test.click:1:34: error: unknown variable $cpa\n  elementclass Q { $cap | -> Queue($cpa) -> }\n                   "
     "                ^~~~\n  expected: a variable of this scope; '$...' between single quotes is left as it "
     "is\nerror: 1 error in test.click\n"},
    {"VariableDefinedThroughItself",
     "define($a $b, $b $a);\n"
     "Idle -> Queue($a) -> Discard;\n",
     "test.click:1:18: error: $a is defined through itself\n"
     "  define($a $b, $b $a);\n"
     "                   ^~\n"
     "error: 1 error in test.click\n"},
    {"DefineWithoutADollar", "define(size 10);\n",
     "test.click:1:8: error: 'size' is not a variable\n"
     "  define(size 10);\n"
     "         ^~~~\n"
     "  expected: define($NAME VALUE, ...)\n"
     "  help: write $size\n"
     "error: 1 error in test.click\n"},
    {"DefineTwice",
     "define($a 1);\n"
     "define($a 2);\n",
     "test.click:2:8: error: $a is defined twice\n"
     "  define($a 2);\n"
     "         ^~\n"
     "  help: the first definition is on line 1\n"
     "error: 1 error in test.click\n"},
    {"ValueThatUnbalancesAConfiguration",
     "define($a / 2);\n"
     "Idle -> Queue(1/$a) -> Discard;\n",
     "test.click:2:15: error: the values of its variables leave this configuration without an end\n"
     "  Idle -> Queue(1/$a) -> Discard;\n"
     "                ^~~~\n"
     "  expected: balanced parentheses, strings and comments\n"
     "error: 1 error in test.click\n"},
    {"DefineWithoutParentheses", "define $a 1;\n",
     "test.click:1:8: error: unexpected '$a'\n"
     "  define $a 1;\n"
     "         ^~\n"
     "  expected: define( ... )\n"
     "error: 1 error in test.click\n"},
    {"ProvideIsNotSupported", "provide(package x);\n",
     "test.click:1:1: error: 'provide' is not supported\n"
     "  provide(package x);\n"
     "  ^~~~~~~\n"
     "  help: remove the statement\n"
     "error: 1 error in test.click\n"},
    {"ExtensionOfNothing", "elementclass P { $a | -> Queue($a) -> || ... }\n",
     "test.click:1:42: error: there is no class 'P' to extend\n"
     "  elementclass P { $a | -> Queue($a) -> || ... }\n"
     "                                           ^~~\n"
     "  expected: a class of that name that is defined before this one\n"
     "error: 1 error in test.click\n"},
    {"ExtensionThatIsNotLast", "elementclass Queue { ... || $a | -> Counter -> }\n",
     "test.click:1:22: error: '...' is not the last alternative\n"
     "  elementclass Queue { ... || $a | -> Counter -> }\n"
     "                       ^~~\n"
     "  expected: '|| ... }' at the end of the class\n"
     "error: 1 error in test.click\n"},
    {"ExtensionWithoutAName", "Idle -> { -> Counter -> || ... } -> Discard;\n",
     "test.click:1:28: error: '...' in a compound without a name\n"
     "  Idle -> { -> Counter -> || ... } -> Discard;\n"
     "                             ^~~\n"
     "  help: only an elementclass can extend one of its name\n"
     "error: 1 error in test.click\n"},
    {"ExtensionAmongStatements", "elementclass Queue { -> Counter ->; ... }\n",
     "test.click:1:37: error: unexpected '...'\n"
     "  elementclass Queue { -> Counter ->; ... }\n"
     "                                      ^~~\n"
     "  expected: a statement or '}'\n"
     "  help: '...' stands by itself: '|| ...'\n"
     "error: 1 error in test.click\n"},
    {"IndexThatIsNoNumber",
     "define($a x y);\n"
     "Idle -> Print(${a[one]}) -> Discard;\n",
     "test.click:2:19: error: 'one' is not the number of a word\n"
     "  Idle -> Print(${a[one]}) -> Discard;\n"
     "                    ^~~\n"
     "  expected: ${a[N]}, where the first word is 0\n"
     "error: 1 error in test.click\n"},
    {"LibraryWithoutAReader", "require(library \"x.click\");\n",
     "test.click:1:9: error: libraries cannot be read here\n"
     "  require(library \"x.click\");\n"
     "          ^~~~~~~~~~~~~~~~~\n"
     "  help: put the library's text into this file\n"
     "error: 1 error in test.click\n"},
    {"LibraryWithoutAName", "require(library);\n",
     "test.click:1:9: error: 'library' without one name\n"
     "  require(library);\n"
     "          ^~~~~~~\n"
     "  expected: library NAME\n"
     "error: 1 error in test.click\n"},
    {"UnknownRequirements", "require(ip6, package slice,\n  linuxmodule);\nrequire(package);\nrequire(ip6 twice);\n",
     "test.click:1:22: error: this configuration requires 'slice', which is not available\n  require(ip6, package "
     "slice,\n                       ^~~~~\n  expected: one of: sluice, userlevel, ip6, int64, batch, pcap, "
     "compact_config\n  help: did you mean 'sluice'?\ntest.click:2:3: error: this configuration requires "
     "'linuxmodule', which is not available\n    linuxmodule);\n    ^~~~~~~~~~~\n  expected: one of: sluice, "
     "userlevel, ip6, int64, batch, pcap, compact_config\n  help: remove it if the elements exist anyway: `sluice "
     "elements`\ntest.click:3:9: error: 'package' without a name\n  require(package);\n          ^~~~~~~\n  expected: "
     "package NAME, or NAME, with one of: sluice, userlevel, ip6, int64, batch, pcap, compact_config\ntest.click:4:13: "
     "error: unexpected 'twice' in 'require'\n  require(ip6 twice);\n              ^~~~~\n  expected: package NAME, or "
     "NAME, with one of: sluice, userlevel, ip6, int64, batch, pcap, compact_config\nerror: 4 errors in test.click\n"},
    {"NameOfDigits", "a/5 :: Idle;\n",
     "test.click:1:1: error: element name 'a/5' has a component of digits only\n"
     "  a/5 :: Idle;\n"
     "  ^~~\n"
     "  expected: a name with a letter, '_' or '@' in each component\n"
     "error: 1 error in test.click\n"},
    {"NameWithATrailingSlash", "a/ :: Idle;\n",
     "test.click:1:2: error: a name does not end in '/'\n"
     "  a/ :: Idle;\n"
     "   ^\n"
     "error: 1 error in test.click\n"},
    {"LandmarkMovesThePosition",
     "# 100 \"other.click\"\n"
     "Idle -> nothing;\n",
     "other.click:100:9: error: element 'nothing' is not declared\n"
     "  Idle -> nothing;\n"
     "          ^~~~~~~\n"
     "  expected: an element that is declared before, or a class\n"
     "error: 1 error in test.click\n"},
    {"BrokenLandmark",
     "# comment\n"
     "Idle -> Discard;\n",
     "test.click:1:1: error: this is not a landmark\n"
     "  # comment\n"
     "  ^~~~~~~~~\n"
     "  expected: # LINE \"FILE\" or #line LINE \"FILE\"\n"
     "  help: comments start with //\n"
     "error: 1 error in test.click\n"},
    {"TwoElementsOfOneNameAfterExpansion",
     "a :: { -> b :: Counter -> };\n"
     "a/b :: Idle -> a -> Discard;\n",
     "test.click:2:1: error: two elements are named 'a/b' after expansion\n"
     "  a/b :: Idle -> a -> Discard;\n"
     "  ^\n"
     "  help: the other one is on line 1; avoid '/' in names\n"
     "error: 1 error in test.click\n"},
    {"BinaryJunk", "Idle -> \001\377 Discard;\n",
     "test.click:1:9: error: unexpected '?\?'\n"
     "  Idle -> ?\? Discard;\n"
     "          ^~\n"
     "  expected: an element after the arrow\n"
     "error: 1 error in test.click\n"},
    {"SeveralErrorsAtOnce",
     "a :: Counter;\n"
     "a :: Counter;\n"
     "b -> a;\n"
     "a -> [x] Discard;\n"
     "c :: ;\n",
     "test.click:2:1: error: element 'a' is declared twice\n"
     "  a :: Counter;\n"
     "  ^\n"
     "  help: the first declaration is on line 1\n"
     "test.click:3:1: error: element 'b' is not declared\n"
     "  b -> a;\n"
     "  ^\n"
     "  expected: an element that is declared before, or a class\n"
     "test.click:4:7: error: port 'x' is not a number\n"
     "  a -> [x] Discard;\n"
     "        ^\n"
     "  expected: a number from 0 to 4095\n"
     "test.click:5:6: error: unexpected ';'\n"
     "  c :: ;\n"
     "       ^\n"
     "  expected: the class of the element\n"
     "error: 4 errors in test.click\n"},
    {"ElementclassWithoutAName", "elementclass { -> Idle -> }\n",
     "test.click:1:14: error: unexpected '{'\n"
     "  elementclass { -> Idle -> }\n"
     "               ^\n"
     "  expected: the name of the class\n"
     "error: 1 error in test.click\n"},
    {"ElementclassWithoutABody",
     "elementclass X;\n"
     "Idle -> X;\n",
     "test.click:1:15: error: unexpected ';'\n"
     "  elementclass X;\n"
     "                ^\n"
     "  expected: '{' or the name of a class\n"
     "error: 1 error in test.click\n"},
};

class WrongConfigurationTest : public testing::TestWithParam<WrongConfiguration> {};

TEST_P(WrongConfigurationTest, IsRefusedWithExactlyThisMessage) {
  ParseOptions options;
  options.known_classes = {"Idle", "Discard", "Counter", "Queue", "Print", "Tee", "RoundRobinSched"};
  const Result<ClickGraph> graph = parse_click(GetParam().text, "test.click", options);
  ASSERT_FALSE(graph.ok()) << GetParam().text;
  EXPECT_EQ(to_string(graph.error()), GetParam().rendered);
}

INSTANTIATE_TEST_SUITE_P(Click, WrongConfigurationTest, testing::ValuesIn(kWrong),
                         [](const auto& param) { return std::string(param.param.name); });

// Texts by name, in place of files.
ParseOptions with_libraries(const std::map<std::string, std::string>& texts) {
  ParseOptions options;
  options.library = [texts](const std::string& name, const std::string& from) -> Result<ClickLibrary> {
    const auto at = texts.find(name);
    if (at == texts.end()) return Error("there is no such text beside " + from);
    return ClickLibrary{name, at->second};
  };
  return options;
}

TEST(ClickErrors, FindingsInLibrariesNameThem) {
  const ParseOptions options = with_libraries({{"a", "x :: Idle;\nrequire(library nowhere);\n"}, {"b", "Idle -> ;"}});
  const auto graph =
      parse_click("i :: Idle; require(library a) j :: ;\nrequire(library b);\nIdle -> ;\n", "test.click", options);
  ASSERT_FALSE(graph.ok());
  EXPECT_EQ(to_string(graph.error()),
            "a:2:9: error: library 'nowhere': there is no such text beside a\n"
            "  require(library nowhere);\n"
            "          ^~~~~~~~~~~~~~~\n"
            "  expected: a file beside the one that requires it\n"
            "test.click:1:36: error: unexpected ';'\n"
            "                                j :: ;\n"
            "                                     ^\n"
            "  expected: the class of the element\n"
            "b:1:9: error: unexpected ';'\n"
            "  Idle -> ;\n"
            "          ^\n"
            "  expected: an element after the arrow\n"
            "test.click:3:9: error: unexpected ';'\n"
            "  Idle -> ;\n"
            "          ^\n"
            "  expected: an element after the arrow\n"
            "error: 4 errors in test.click\n");
}

TEST(ClickErrors, LibrariesThatRequireEachOtherEnd) {
  EXPECT_TRUE(parse_click("require(library a); x -> Discard;", "test.click",
                          with_libraries({{"a", "require(library b); x :: Idle;"}, {"b", "require(library a)"}}))
                  .ok());
  const auto inside = parse_click("x :: { require(library a) };", "test.click", with_libraries({{"a", ""}}));
  ASSERT_FALSE(inside.ok());
  EXPECT_EQ(inside.error().diagnostics.at(0).message, "library 'a' is required inside a compound");
  ParseOptions deep;
  deep.library = [](const std::string& name, const std::string&) -> Result<ClickLibrary> {
    return ClickLibrary{name, "require(library " + name + "x)"};
  };
  const auto endless = parse_click("require(library a)", "test.click", deep);
  ASSERT_FALSE(endless.ok());
  EXPECT_EQ(endless.error().diagnostics.at(0).message, "libraries require each other deeper than 32");
}

TEST(ClickErrors, AtLeastSeventyConfigurationsAreHeld) {
  EXPECT_GE(std::size(kWrong), 70u);
}

}  // namespace
}  // namespace sluice
