#!/usr/bin/env python3
"""The live page in a browser: page_test.py SLUICE [--shots DIR]

Without Chromium (./dev test installs Debian's chromium-headless-shell) this ends with 77, which CTest counts as skipped.
With --shots the states that it looks at are kept as DIR/*.png, for people."""
import base64
import fcntl
import http.server
import json
import os
import pathlib
import re
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMIT_S = 600
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
SHOTS = None
PAGE = re.search(r'R"page\((.*)\)page"', (ROOT / "src/control/live_page.cpp").read_text(encoding="utf-8"), re.S).group(1)

# Points of a path of M, L, Q and C, and which boxes they lie in.
GEOMETRY = """
function pointsOf(d){const n=d.match(/[MLQC]|-?[\\d.]+(?:e-?\\d+)?/g),out=[];let i=0,at=[0,0];const take=()=>[+n[i++],+n[i++]];
 while(i<n.length){const c=n[i++],p=[at];for(let k='MLQC'.indexOf(c)||1;k>0;k--)p.push(take());
  if(c==='M')out.push(p[1]);else for(let t=1;t<=16;t++){let q=p;while(q.length>1)q=q.slice(1).map((b,k)=>[0,1].map(j=>q[k][j]+(b[j]-q[k][j])*t/16));out.push(q[0])}
  at=p[p.length-1]}
 return out}
function wrongIn(paths,boxes,width,height){const bad=[];
 boxes.forEach((a,i)=>boxes.forEach((b,k)=>{if(i<k&&a.x<b.x+b.w&&b.x<a.x+a.w&&a.y<b.y+b.h&&b.y<a.y+a.h)bad.push(`${a.name} over ${b.name}`)}));
 boxes.forEach(b=>{if(b.x<0||b.y<0||b.x+b.w>width+1||b.y+b.h>height)bad.push(`${b.name} is outside`)});
 paths.forEach(d=>pointsOf(d).some(([x,y])=>{const hit=boxes.find(b=>x>b.x+1&&x<b.x+b.w-1&&y>b.y+1&&y<b.y+b.h-1);
  if(hit)bad.push(`${d} crosses ${hit.name}`);else if(!(x>=-1&&x<=width+1&&y>=0&&y<=height))bad.push(`${d} leaves the picture`);else return false;return true}));
 return bad}
"""


class Browser:
    """A headless Chromium with one page, by its debugging pipe."""

    def __init__(self):
        self.profile = tempfile.TemporaryDirectory()
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        # Chromium reads 3 and writes 4.
        theirs_in, theirs_out = (fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (theirs_in, theirs_out))
        self.process = subprocess.Popen(
            [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
             "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}"], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, close_fds=False, preexec_fn=lambda: (os.dup2(theirs_in, 3), os.dup2(theirs_out, 4)))
        os.close(theirs_in)
        os.close(theirs_out)
        self.out, self.in_, self.text, self.number, self.events, self.session = ours_out, ours_in, b"", 0, [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")

    def message(self, seconds):
        end = time.monotonic() + seconds
        while b"\0" not in self.text:
            if not select.select([self.in_], [], [], max(0, end - time.monotonic()))[0]:
                return None
            self.text += os.read(self.in_, 1 << 20)
        one, self.text = self.text.split(b"\0", 1)
        return json.loads(one)

    def call(self, method, **params):
        self.number += 1
        request = {"id": self.number, "method": method, "params": params}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.out, json.dumps(request).encode() + b"\0")
        while True:
            answer = self.message(LIMIT_S)
            assert answer is not None, f"no answer to {method}"
            if answer.get("id") == self.number:
                assert "error" not in answer, (method, answer)
                return answer["result"]
            self.events.append(answer)

    def js(self, expression):
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, json.dumps(done["exceptionDetails"])[:600]
        return done["result"].get("value")

    def until(self, expression):
        """Waits until it holds; its value."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            if value := self.js(expression):
                return value
            time.sleep(0.1)
        raise AssertionError(f"never: {expression}; status: {self.js('$(`status`).textContent+` `+$(`status`).title')}")

    def open(self, url, width, height=900):
        self.size(width, height)
        self.call("Page.navigate", url=url)

    def size(self, width, height=900):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def scheme(self, name):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def shot(self, name):
        if SHOTS is None:
            return
        width, height = self.js("[innerWidth,Math.ceil(document.documentElement.getBoundingClientRect().height)]")
        image = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True,
                          clip={"x": 0, "y": 0, "width": width, "height": height, "scale": 1})
        (SHOTS / f"{name}.png").write_bytes(base64.b64decode(image["data"]))

    def console(self):
        """What the page wrote there since the last call, errors of its own and of the network included."""
        while (one := self.message(0.2)) is not None:
            self.events.append(one)
        said = [e for e in self.events if e.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")]
        self.events = []
        return said

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.in_)
        os.close(self.out)
        self.profile.cleanup()


ELEMENTS = [("in", "FromDevice"), ("in2", "FromDevice"), ("input", "IPInput"), ("acl_check", "ACL"), ("route", "IPRoute"),
            ("ttl", "DecIPTTL"), ("rewrite", "AdjacencyRewrite"), ("ports", "PortSwitch"), ("out0", "ToDevice"), ("out1", "ToDevice"),
            ("slow", "AdjacencyRewrite"), ("fragment", "IPFragmenter")]
EDGES = [("in", 0, "input"), ("in2", 0, "input"), ("input", 0, "acl_check"), ("acl_check", 0, "route"), ("route", 0, "ttl"),
         ("ttl", 0, "rewrite"), ("rewrite", 0, "ports"), ("rewrite", 1, "fragment"), ("ports", 0, "out0"), ("ports", 1, "out1"),
         ("slow", 0, "out0"), ("slow", 1, "fragment"), ("fragment", 0, "slow")]
KINDS = {"acl-deny": "policy", "no-route": "policy", "ipv4-bad-checksum": "malformed", "unresolved-neighbour": "lost"}


class Router(http.server.ThreadingHTTPServer):
    """Serves the page, and the reports of a router that does not exist; each has more packets than the last one."""

    def __init__(self, lossy=False, port=0):
        self.looks, self.lossy, self.extra, self.started = 0, lossy, ([], []), time.time() - 93_784
        super().__init__(("127.0.0.1", port), Answer)
        self.url = f"http://127.0.0.1:{self.server_port}/"
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()

    def stop(self):
        self.shutdown()
        self.server_close()
        self.thread.join()

    def report(self):
        self.looks += 1
        n = 100_000 * self.looks
        lost = 120 * self.looks if self.lossy else 0
        drops = {"acl_check": {"acl-deny": n // 50}, "route": {"no-route": n // 1000}, "input": {"ipv4-bad-checksum": n // 5000},
                 "rewrite": {"unresolved-neighbour": lost} if lost else {}}
        shares = {"in": 0.6, "in2": 0.4, "out0": 0.4, "out1": 0.6, "slow": 0, "fragment": 0}
        elements = [{"name": name, "class": kind, "packets": int(n * shares.get(name, 1)), "bytes": int(346 * n * shares.get(name, 1)),
                     "drops": drops.get(name, {})} for name, kind in ELEMENTS + self.extra[0]]
        total = {reason: count for one in drops.values() for reason, count in one.items()}
        times = {"p50": 18_200, "p99": 64_100, "max": 3_230_000}
        ports = [{"name": name, "method": "af_xdp", "mode": "native, copy", "mtu": 1500, "up": link == "up", "link": link,
                  "rx": [{"packets": int(n * share), "bytes": int(346 * n * share), "missed": lost if share == 0.6 else 0, "too_long": 0, "invalid": 0}],
                  "tx": [{"packets": int(n * (1 - share) * (share > 0)), "bytes": int(346 * n * (1 - share) * (share > 0)), "full": 0, "failed": 0}]}
                 for name, share, link in (("eth0", 0.6, "up"), ("eth1", 0.4, "up"), ("enp129s0f1np1", 0, "down"))]
        rules = [("permit tcp from any to any port 443", 2, 0.5), ("permit udp from any to any port 1024-65535", 4, 0.3),
                 ("permit tcp from 2001:db8:1234:5678:9abc:def0:1234:0/112 to 2001:db8:ffff:ffff:ffff:ffff:ffff:ffff port 8080-8090", 17, 0.1),
                 ("deny udp from 10.0.0.0/8 to any port 53", 3, 0.02)]
        return {
            "version": "0.1.0", "revision": "0123456", "configuration": "standard graph", "device": "cpu", "workers": 2, "generation": 3,
            "process": {"host": "edge1", "socket": "/run/sluice/control", "start_unix_seconds": self.started, "cpu_seconds": 812.5,
                        "resident_bytes": 123_456_789, "virtual_bytes": 0, "open_files": 31, "open_files_limit": 1024},
            "packets_in": n, "bytes_in": 346 * n, "packets_out": n - sum(total.values()), "bytes_out": 346 * (n - sum(total.values())),
            "generated": 0, "dropped": sum(total.values()), "sinks": [], "drops": total, "drop_kinds": KINDS, "elements": elements,
            "edges": [{"from": a, "output": k, "to": b, "input": 0, "pull": False} for a, k, b in EDGES + self.extra[1]], "seconds": 93_784,
            "latency_ns": times, "wait_ns": times, "through_ns": times, "egress_ns": times, "interfaces": ports,
            "tables": [{"name": "acl", "kind": "acl", "algorithm": "tuple_merge", "entries": 7, "bytes": 2432, "changed_in_generation": 3},
                       {"name": "fib", "kind": "routes", "algorithm": "sail+range24", "entries": 900_000, "bytes": 39_104_000, "changed_in_generation": 0}],
            "rules": [{"table": "acl", "rule": k, "action": text.split()[0], "text": text, "file": "/etc/sluice/edge.acl", "line": line,
                       "packets": int(n * share), "bytes": int(346 * n * share)} for k, (text, line, share) in enumerate(rules, 1)]}


TRACES = {"asked": 20, "followed": 1, "missed": 0, "filter": "udp from any to any", "packets": [
    {"number": 7, "input": "eth0", "bytes": 60, "flow": "udp 10.0.0.1:4242 > 192.0.2.9:53",
     "fate": {"forwarded": False, "reason": "acl-deny", "element": "acl_check", "ends": []},
     "explanation": {"packets": [{"way": [{"element": "acl_check", "class": "ACL", "notes": ["rule 4 at edge.acl:3"]}]}]}}]}


class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        page = self.path == "/"
        what = PAGE if page else json.dumps(TRACES if "trace" in self.path else self.server.report())
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8" if page else "application/json")
        # As the process sends it: a page that needs more than it allows shows here.
        self.send_header("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:")
        self.send_header("Content-Length", str(len(what.encode())))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(what.encode())


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()

    def router(self, width=1280, lossy=False, extra=([], []), goes_on=False):
        """The page of a router, once it has shown three reports; it asks for no other, unless it `goes_on`."""
        router = Router(lossy)
        self.addCleanup(router.stop)
        router.extra = extra
        self.browser.open(router.url, width)
        self.browser.until("typeof looks!=='undefined'&&looks>=3&&!asking&&failed===null" + ("" if goes_on else "&&(asking=true)"))
        return router

    def silent(self):
        self.assertEqual(self.browser.console(), [])

    def texts(self, selector):
        return self.browser.js(f"[...document.querySelectorAll({json.dumps(selector)})].map(e=>e.textContent)")

    def test_numbers_are_written_as_people_read_them(self):
        self.router()
        for call, said in (("pps(35400)", "35.4 kpps"), ("bits(98e6/8)", "98 Mbit/s"), ("pps(0)", "0 pps"), ("pps(12)", "12 pps"),
                           ("pps(9.5)", "9.50 pps"), ("pps(999.9)", "1.00 kpps"), ("pps(999999)", "1.00 Mpps"), ("pps(-3)", "0 pps"),
                           ("pps(148.8e6)", "149 Mpps"), ("bits(12.5e9)", "100 Gbit/s"), ("age(12.9)", "12 s"), ("age(93784)", "1 d 2 h"),
                           ("age(8000)", "2 h 13 min"), ("time(18200)", "18.2 µs"), ("size(39104000)", "37.3 MiB"), ("count(1,'packet')", "1 packet")):
            self.assertEqual(self.browser.js(call), said, call)
        self.assertEqual(self.browser.js("JSON.stringify(curve([{t:0,v:1},{t:60,v:2}],60))"), '{"d":"M60.0 17.0L120.0 2.0","max":2}')
        # An edge's rate is known by what its ends count, also where others that join it are known.
        edges = json.dumps([{"from": a, "output": 0, "to": b} for a, b in (("a", "b"), ("b", "d"), ("c", "d"), ("x", "y"), ("x", "z"))])
        self.assertEqual(self.browser.js(f"edgeRates({edges},n=>({{a:10,b:10,c:0,d:7,x:5,y:2,z:3}})[n],n=>n==='b'?3:0)"), [10, 7, 0, 2, 3])
        self.silent()

    def test_it_shows_a_router_at_a_glance(self):
        self.router()
        self.browser.shot("light")
        self.browser.scheme("dark")
        self.browser.shot("dark")
        self.browser.scheme("light")
        self.assertEqual(self.texts("#host"), ["edge1"])
        self.assertRegex(self.texts("#facts")[0], r"^sluice 0\.1\.0 · up 1 d 2 h · standard graph on cpu × 2 workers · generation 3$")
        self.assertEqual(self.texts("#ports h3"), ["eth0", "eth1", "enp129s0f1np1"])
        for flow in self.texts("#ports .flow"):
            self.assertRegex(flow, r"^(in|out) [\d.]+ [kM]?pps, [\d.]+ [kMG]?bit/s")
        self.assertEqual(self.browser.js("document.querySelectorAll('#sums .spark').length"), 4)
        self.assertEqual(self.browser.js("document.querySelectorAll('#ports .spark').length"), 6)
        self.assertTrue(self.browser.js("[...document.querySelectorAll('#sums .spark path:last-child')].every(p=>/^M[^L]+L/.test(p.getAttribute('d')))"))
        self.assertIn("none since the start", self.texts("#sums .card")[3])
        self.assertTrue(all(re.match(r"[\d.]+ k?pps", t) for t in self.texts("#rules tr td:first-child")), self.texts("#rules"))
        # What can be copied works as it stands.
        self.assertEqual(self.browser.js("[...document.querySelectorAll('button.cmd')].map(b=>b.dataset.copy)"), [
            f"sluice {what} --control /run/sluice/control" for what in
            ("show runtime --interval 1", "show drops --interval 1", "show rules --by-hits", "show tables", "trace add 20 'udp from any to any'")])
        # What has no words on the page has a tooltip.
        self.assertTrue(self.browser.js("[...document.querySelectorAll('#graph g[transform] title, #graph .edge title, #sums svg title')].every(t=>t.textContent)"))
        self.silent()

    def test_red_is_for_losses_alone(self):
        self.router(lossy=True)
        self.browser.until("document.querySelector('#sums .big.lost')!==null")
        self.browser.shot("drops")
        colour = lambda selector: self.browser.js(f"getComputedStyle(document.querySelector({json.dumps(selector)})).color")
        named = lambda name: self.browser.js(f"(()=>{{const e=el('i');e.style.color='var(--{name})';document.body.append(e);const c=getComputedStyle(e).color;e.remove();return c}})()")
        red = named("red")
        self.assertEqual(colour("#sums .big.lost"), red)
        by_text = self.browser.js("Object.fromEntries([...document.querySelectorAll('#drops td span')].map(e=>[e.textContent,getComputedStyle(e).color]))")
        self.assertEqual(by_text, {"acl-deny": named("grey"), "no-route": named("grey"), "ipv4-bad-checksum": named("amber"), "unresolved-neighbour": red})
        reds = self.browser.js("[...document.querySelectorAll('main *')].filter(e=>e.childElementCount===0&&e.textContent.trim()&&!e.closest('svg')&&getComputedStyle(e).color===%s).map(e=>e.textContent)" % json.dumps(red))
        self.assertTrue(reds)
        for text in reds:
            self.assertRegex(text, r"lost|unresolved|^[\d.]+ k?pps$")
        self.assertEqual(self.browser.js("[...document.querySelectorAll('#graph g.lost title')].map(t=>t.textContent.split(' ')[0])"), ["rewrite"])
        self.assertEqual(self.browser.js("[...document.querySelectorAll('#graph g.malformed title')].map(t=>t.textContent.split(' ')[0])"), ["input"])
        self.silent()

    def drawn(self):
        """What is wrong in the graph on the page, by its DOM."""
        return self.browser.js(GEOMETRY + """(()=>{const boxes=[...document.querySelectorAll('#graph g[transform]')].map(g=>{const[x,y]=/\\(([^)]*)\\)/.exec(g.getAttribute('transform'))[1].split(',').map(Number),
            r=g.querySelector('rect');return{name:g.querySelector('.name').textContent,x,y,w:+r.getAttribute('width'),h:+r.getAttribute('height')}});
            const svg=$('graph'),paths=[...svg.querySelectorAll('.edge')].map(p=>p.getAttribute('d'));
            return{boxes:boxes.length,paths:paths.length,wrong:wrongIn(paths,boxes,+svg.getAttribute('width'),+svg.getAttribute('height')),wide:svg.getBoundingClientRect().right>innerWidth}})()""")

    def test_no_edge_lies_behind_a_box(self):
        self.router()
        for width in (1600, 1280, 760):
            self.browser.size(width)
            for idle in (False, True):
                self.browser.js(f"showIdle={json.dumps(idle)};graph(last,last.at/1000)")
                seen = self.drawn()
                self.assertEqual((seen["boxes"], seen["paths"], seen["wrong"], seen["wide"]), (12, 13, [], False) if idle else (10, 9, [], False))
                self.browser.shot(f"graph_{width}" + ("_idle" if idle else ""))
        # Random graphs with cycles, loops and several edges between two elements.
        wrong = self.browser.js(GEOMETRY + """(()=>{let seed=7;const rnd=n=>{seed=(seed*48271)%2147483647;return seed%n},bad=[];let edges_=0;
            for(let g=0;g<60;g++){const n=2+rnd(24),names=[...Array(n)].map((_,i)=>'e'+i+'x'.repeat(rnd(14))),edges=[];
             for(let i=1;i<n;i++)edges.push({from:names[rnd(i)],to:names[i],output:rnd(3),input:0});
             for(let k=rnd(n);k>0;k--)edges.push({from:names[rnd(n)],to:names[rnd(n)],output:rnd(3),input:0});
             const l=layout(names,edges,[340,700,1200,1600][g%4]);edges_+=l.paths.length;
             bad.push(...wrongIn(l.paths.map(p=>p.d),[...l.nodes].map(([name,b])=>({name,x:b.x,y:b.y,w:l.W,h:l.H})),l.width,l.height).map(w=>`graph ${g}: ${w}`))}
            if(edges_<500)bad.push(`only ${edges_} edges`);return bad})()""")
        self.assertEqual(wrong, [])
        # The check itself sees an edge behind a box.
        self.assertEqual(len(self.browser.js(GEOMETRY + "wrongIn(['M0 10L100 10'],[{name:'a',x:40,y:0,w:20,h:20}],100,20)")), 1)
        self.silent()

    def test_idle_elements_are_folded_until_they_are_asked_for(self):
        self.router()
        names = lambda: set(self.texts("#graph .name"))
        self.assertNotIn("slow", names())
        self.assertEqual(self.texts("#fold"), ["show 2 idle elements"])
        self.browser.js("$('fold').click()")
        self.assertLessEqual({"slow", "fragment"}, names())
        self.assertEqual(self.texts("#fold"), ["fold idle elements"])
        # Where nothing leaves, all are shown: there is no busy way to tell from an idle one.
        self.assertEqual(self.browser.js("seen(['a','b'],[{from:'a',to:'b'}],new Set(['b']),false)"), ["a", "b"])
        self.silent()

    def test_a_phone_has_a_list_and_no_width_cuts_anything(self):
        long = "a_rather_long_name_of_an_element_that_somebody_wrote_without_a_space"
        self.router(width=360, lossy=True, extra=([(long, "Counter")], [("in", 0, long)]))
        self.browser.js("document.querySelectorAll('details').forEach(d=>d.open=true)")
        for width in (360, 599, 601, 1000, 1280):
            self.browser.size(width, 740)
            self.browser.js("new Promise(r=>requestAnimationFrame(()=>requestAnimationFrame(r)))")
            self.assertEqual(self.browser.js("innerWidth"), width)
            self.assertLessEqual(self.browser.js("document.documentElement.scrollWidth"), width)
            cut = self.browser.js("""[...document.querySelectorAll('header *, main *')].filter(e=>{if(e.closest('svg')||!e.offsetParent)return false;const r=e.getBoundingClientRect(),
                c=(e.closest('section,.card,header')||e).getBoundingClientRect();return r.width>0&&(r.right>innerWidth+.5||r.right>c.right+.5)}).map(e=>e.outerHTML.slice(0,90))""")
            self.assertEqual(cut, [], width)
            phone = width <= 600
            self.assertEqual(self.browser.js("getComputedStyle($('graph')).display"), "none" if phone else "block")
            self.assertEqual(self.browser.js("getComputedStyle($('list')).display"), "block" if phone else "none")
            if width in (360, 1000):
                self.browser.shot("phone" if phone else "tablet")
        self.assertEqual(len(self.texts("#list b")), 11)
        # Every column of the desktop is there.
        self.browser.size(360, 740)
        self.assertTrue(self.browser.js("[...document.querySelectorAll('#drops td, #rules td, #tables td')].every(e=>e.offsetParent)"))
        self.silent()

    def test_old_figures_are_grey_and_say_how_old_they_are(self):
        router = self.router(goes_on=True)
        port = router.server_port
        self.browser.until("$('status').textContent==='live'")
        router.stop()
        said = self.browser.until("/^disconnected \\d+ s ago$/.exec($('status').textContent)?.[0]")
        self.assertTrue(self.browser.js("document.body.classList.contains('stale')"))
        self.assertEqual(self.browser.js("getComputedStyle(document.querySelector('main')).filter"), "grayscale(1)")
        self.browser.until(f"$('status').textContent!=={json.dumps(said)}&&/ago$/.test($('status').textContent)")
        self.browser.shot("disconnected")
        # Only the network says so in the console, which no page can keep it from.
        self.assertEqual([e for e in self.browser.console() if e["method"] != "Log.entryAdded" or e["params"]["entry"]["source"] != "network"], [])
        again = Router(port=port)
        self.addCleanup(again.stop)
        router.stop = lambda: None
        self.browser.until("$('status').textContent==='live'&&!document.body.classList.contains('stale')")
        self.assertEqual([e for e in self.browser.console() if e["method"] != "Log.entryAdded" or e["params"]["entry"]["source"] != "network"], [])

    def test_the_page_of_a_process_is_this_one_and_works(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        there = pathlib.Path(folder.name)
        (there / "edge.acl").write_text("deny udp from any to any port 53\npermit tcp from any to any\npermit udp from any to any\n")
        (there / "rib.txt").write_text("0.0.0.0/0 via 192.0.2.1\n")
        subprocess.run([SLUICE, "gen", "traffic", "--rules", "edge.acl", "--routes", "rib.txt", "--packets", "2000", "--ipv6", "0", "--malformed", "0.01",
                        "--out", "in.pcap"], cwd=there, check=True, capture_output=True, timeout=LIMIT_S)
        with open(there / "err", "w", encoding="utf-8") as errors:
            run = subprocess.Popen([SLUICE, "run", "--acl", "edge.acl", "--routes", "rib.txt", "--in", "in.pcap", "--out", "out.pcap", "--wait", "--http",
                                    "127.0.0.1:0", "--control", "s", "-o", "json"], cwd=there, stdout=subprocess.DEVNULL, stderr=errors)
        self.addCleanup(run.wait)
        self.addCleanup(run.kill)
        end = time.monotonic() + LIMIT_S
        while not (found := re.search(r"live page (http://\S+)", (there / "err").read_text())):
            self.assertIsNone(run.poll(), (there / "err").read_text())
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
        self.browser.open(found.group(1), 1280)
        self.browser.until("typeof looks!=='undefined'&&looks>=2&&last&&last.packets_in===2000")
        self.assertEqual(self.browser.js("(async()=>(await fetch('/')).text())()"), PAGE)
        self.assertEqual(self.texts("#host"), [os.uname().nodename])
        self.browser.until("$('status').textContent==='live'")
        self.assertIn("edge.acl:1", self.texts("#rules")[0])
        self.assertEqual(self.browser.js("document.querySelector('button.cmd').dataset.copy"), f"sluice show runtime --interval 1 --control {there.resolve()}/s")
        seen = self.drawn()
        self.assertTrue(seen["boxes"] > 3 and seen["wrong"] == [], seen)
        self.browser.shot("process")
        self.silent()
        run.kill()
        self.browser.until("/^disconnected/.test($('status').textContent)")


if __name__ == "__main__":
    SLUICE = str(pathlib.Path(sys.argv.pop(1)).resolve())
    if "--shots" in sys.argv:
        at = sys.argv.index("--shots")
        SHOTS = pathlib.Path(sys.argv[at + 1])
        SHOTS.mkdir(parents=True, exist_ok=True)
        del sys.argv[at:at + 2]
    if BROWSER is None:
        print("skipped: no Chromium here (apt-get install chromium-headless-shell)")
        sys.exit(77)
    unittest.main(verbosity=2)
