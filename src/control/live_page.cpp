// host only
// The page that a running process serves: whole, so that a browser loads nothing else. It asks /api/v1 once a second
// while it is seen.
#include "control/windows.h"

namespace sluice {

const std::string_view kLivePage = R"page(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>sluice</title><link rel="icon" href="data:,">
<style>
:root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--line:#d5dae1;--text:#1b2330;--dim:#5d6878;--edge:#8793a3;--node:#eef2f7;--blue:#1f6feb;--red:#c62828;--green:#1a7f37}
@media(prefers-color-scheme:dark){:root{--bg:#11151b;--card:#191f28;--line:#2f3845;--text:#e4e9f0;--dim:#98a4b3;--edge:#69778a;--node:#222b37;--blue:#6cb0ff;--red:#ff7b72;--green:#57c26a}}
:root[data-theme=light]{color-scheme:light;--bg:#f6f7f9;--card:#fff;--line:#d5dae1;--text:#1b2330;--dim:#5d6878;--edge:#8793a3;--node:#eef2f7;--blue:#1f6feb;--red:#c62828;--green:#1a7f37}
:root[data-theme=dark]{color-scheme:dark;--bg:#11151b;--card:#191f28;--line:#2f3845;--text:#e4e9f0;--dim:#98a4b3;--edge:#69778a;--node:#222b37;--blue:#6cb0ff;--red:#ff7b72;--green:#57c26a}
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--text);font:14px/1.4 system-ui,sans-serif}
header{display:flex;flex-wrap:wrap;gap:.3rem 1.2rem;align-items:baseline;padding:.7rem 1rem;border-bottom:1px solid var(--line);background:var(--card)}
h1{font-size:1rem;margin:0}h2{font-size:.85rem;margin:0 0 .5rem;color:var(--dim);font-weight:600}
main{display:grid;gap:.8rem;padding:.8rem;grid-template-columns:repeat(12,minmax(0,1fr))}
section{background:var(--card);border:1px solid var(--line);border-radius:6px;padding:.7rem;grid-column:span 6;overflow:auto}
section.wide{grid-column:1/-1}@media(max-width:900px){section{grid-column:1/-1}}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}th{text-align:left;color:var(--dim);font-weight:500}
th,td{padding:.12rem .6rem .12rem 0;white-space:nowrap}td.n,th.n{text-align:right}td.t{white-space:normal;overflow-wrap:anywhere;font-family:ui-monospace,monospace;font-size:12px}
.red{color:var(--red)}.green{color:var(--green)}.dim{color:var(--dim)}.big{font-size:1.15rem;font-weight:600;font-variant-numeric:tabular-nums}
#graph{width:100%;height:440px;display:block;touch-action:none;cursor:grab;outline-offset:-2px}
#graph rect{fill:var(--node);stroke:var(--edge)}#graph g.drop rect{stroke:var(--red);stroke-width:2}#graph g.found rect{stroke:var(--blue);stroke-width:3}
#graph path{fill:none;stroke:var(--edge);stroke-width:1.2}#graph path.flow{stroke:var(--blue)}
#graph text{fill:var(--text);font-size:11px}#graph text.c{fill:var(--dim);font-size:9.5px}#graph text.r{fill:var(--red);font-size:10px;paint-order:stroke;stroke:var(--card);stroke-width:3px}#graph text.e{fill:var(--blue);font-size:9.5px;paint-order:stroke;stroke:var(--card);stroke-width:3px}
.bar{display:inline-block;height:.6rem;background:var(--blue);border-radius:2px;vertical-align:middle}
button,input{font:inherit;color:inherit;background:var(--bg);border:1px solid var(--line);border-radius:4px;padding:.1rem .5rem}
details{padding:.12rem 0}summary{cursor:pointer;overflow-wrap:anywhere}details table{margin:.2rem 0 .4rem 1rem;width:auto}
kbd{border:1px solid var(--line);border-radius:3px;padding:0 .25rem;font-size:12px}#error{color:var(--red)}
</style></head><body>
<header><h1>sluice <span id="what" class="dim"></span></h1>
<span>in <span id="in" class="big">-</span></span><span>out <span id="out" class="big">-</span></span>
<span>drops <span id="drop" class="big">-</span></span><span id="more" class="dim"></span><span id="error" role="status"></span>
<span style="margin-left:auto"><input id="find" placeholder="element" aria-label="Find an element" size="12">
<button id="pause">pause</button> <button id="theme">theme</button></span></header>
<main><section class="wide"><h2>Graph <span class="dim" id="gnote"></span></h2><svg id="graph" tabindex="0" role="img" aria-label="The graph with packets per second on its edges"></svg></section>
<section><h2>Rules that decide most</h2><div id="rules"></div></section>
<section><h2>Drops</h2><div id="drops"></div></section>
<section><h2>Time of packets</h2><div id="times"></div></section>
<section><h2>Tables</h2><div id="tables"></div></section>
<section class="wide"><h2>Traces <span class="dim" id="tnote"></span></h2><div id="traces"></div></section>
<section class="wide"><h2>Ports</h2><div id="ports"></div></section>
<section class="wide dim"><kbd>space</kbd> pause · <kbd>f</kbd> fit · <kbd>+</kbd> <kbd>-</kbd> zoom · <kbd>arrows</kbd> move · <kbd>/</kbd> find · <kbd>t</kbd> theme</section></main>
<script>
'use strict';
const $=id=>document.getElementById(id),SVG='http://www.w3.org/2000/svg';
const num=n=>n.toLocaleString('en');
function short(n){for(const[u,f]of[['G',1e9],['M',1e6],['k',1e3]])if(n>=f)return(n/f).toFixed(n/f<10?2:1)+' '+u;return n<10&&n>0?n.toFixed(1):Math.round(n)+''}
const bytes=n=>n>=1048576?(n/1048576).toFixed(1)+' MiB':n>=1024?(n/1024).toFixed(1)+' KiB':n+' B';
function time(ns){return ns>=1e9?(ns/1e9).toFixed(2)+' s':ns>=1e6?(ns/1e6).toFixed(2)+' ms':ns>=1e3?(ns/1e3).toFixed(1)+' us':ns+' ns'}
function el(tag,text,cls){const e=document.createElement(tag);if(text!==undefined)e.textContent=text;if(cls)e.className=cls;return e}
function table(where,heads,rows,none){const box=$(where);if(!rows.length){box.replaceChildren(el('span',none,'dim'));return}
 const t=el('table'),h=el('tr');heads.forEach(([x,c])=>h.append(el('th',x,c)));t.append(h);
 rows.forEach(r=>{const tr=el('tr');r.forEach((c,i)=>{const td=el('td',undefined,heads[i][1]);if(c instanceof Node)td.append(c);else td.textContent=c;tr.append(td)});t.append(tr)});box.replaceChildren(t)}
function s(tag,attrs,text){const e=document.createElementNS(SVG,tag);for(const k in attrs)e.setAttribute(k,attrs[k]);if(text!==undefined)e.textContent=text;return e}
// Layers by the longest way from a source, without the edges that close a cycle; then order within them by neighbours.
function layout(r){const names=r.elements.map(e=>e.name),out=new Map(names.map(n=>[n,[]])),into=new Map(names.map(n=>[n,[]]));
 r.edges.forEach(e=>{if(out.has(e.from)&&out.has(e.to)){out.get(e.from).push(e.to)}});
 const state=new Map(),order=[],back=new Set();
 for(const root of[...names].sort((a,b)=>r.edges.some(e=>e.to===a)-r.edges.some(e=>e.to===b))){const stack=[[root,0]];
  if(state.get(root))continue;state.set(root,1);
  while(stack.length){const top=stack[stack.length-1],next=out.get(top[0])[top[1]++];
   if(next===undefined){state.set(top[0],2);order.push(top[0]);stack.pop()}
   else if(state.get(next)===1)back.add(top[0]+'\n'+next);
   else if(!state.get(next)){state.set(next,1);stack.push([next,0])}}}
 const layer=new Map(names.map(n=>[n,0]));
 order.reverse().forEach(n=>out.get(n).forEach(m=>{if(!back.has(n+'\n'+m)){layer.set(m,Math.max(layer.get(m),layer.get(n)+1));into.get(m).push(n)}}));
 let layers=[];names.forEach(n=>(layers[layer.get(n)]=layers[layer.get(n)]||[]).push(n));
 // A layer that is long becomes several columns, so that many elements side by side stay readable.
 const most=Math.max(6,Math.ceil(Math.sqrt(names.length)*.8)),place=new Map();let column=0;
 layers.forEach(l=>{l.sort((a,b)=>mean(a)-mean(b)||names.indexOf(a)-names.indexOf(b));
  for(let i=0;i<l.length;i+=most){const part=l.slice(i,i+most);part.forEach((n,j)=>place.set(n,{x:column*205,y:(j-(part.length-1)/2)*70}));column++}});
 function mean(n){const y=into.get(n).map(m=>place.get(m)).filter(Boolean).map(p=>p.y);return y.length?y.reduce((a,b)=>a+b)/y.length:0}
 // Many columns go on below, as lines of a text do.
 const per=Math.max(6,Math.ceil(column/Math.ceil(column/8)));if(column>8){const high=[];place.forEach(p=>{const b=Math.floor(p.x/205/per);high[b]=Math.max(high[b]||0,Math.abs(p.y)*2+110)});
  place.forEach(p=>{const c=p.x/205,b=Math.floor(c/per);p.x=(c%per)*205;p.y+=high.slice(0,b).reduce((a,h)=>a+h,0)+high[b]/2})}
 return place}
let last=null,place=null,shape='',view=null,paused=false,nodes=new Map(),edges=[];
function box(){let x0=1e9,y0=1e9,x1=-1e9,y1=-1e9;place.forEach(p=>{x0=Math.min(x0,p.x);x1=Math.max(x1,p.x);y0=Math.min(y0,p.y);y1=Math.max(y1,p.y)});return{x:x0-20,y:y0-45,w:x1-x0+190,h:y1-y0+95}}
// High enough that names can be read where there are many.
function fit(){view=box();$('graph').style.height=Math.min(6000,Math.max(440,$('graph').clientWidth*view.h/view.w))+'px';show()}
function show(){$('graph').setAttribute('viewBox',[view.x,view.y,view.w,view.h].join(' '))}
function zoom(f){view={x:view.x+view.w*(1-f)/2,y:view.y+view.h*(1-f)/2,w:view.w*f,h:view.h*f};show()}
function draw(r){const key=JSON.stringify([r.elements.map(e=>e.name+e.class),r.edges]);if(key===shape)return;shape=key;place=layout(r);nodes.clear();edges=[];
 const g=$('graph'),low=s('g'),high=s('g'),labels=s('g');
 r.edges.forEach(e=>{const a=place.get(e.from),b=place.get(e.to);if(!a||!b)return;const x0=a.x+150,x1=b.x,bend=b.x>a.x?Math.max(20,(x1-x0)/2):70;
  const p=s('path',{d:`M${x0} ${a.y} C${x0+bend} ${a.y} ${x1-bend} ${b.y} ${x1} ${b.y}`}),t=s('text',{class:'e',x:(x0+x1)/2,y:(a.y+b.y)/2-4,'text-anchor':'middle'});low.append(p);labels.append(t);edges.push({e,p,t})});
 r.elements.forEach(e=>{const at=place.get(e.name),n=s('g',{transform:`translate(${at.x},${at.y-20})`});n.append(s('title',{},`${e.name} :: ${e.class}`),s('rect',{width:150,height:40,rx:5}),
  s('text',{x:8,y:17},e.name.length>22?e.name.slice(0,21)+'…':e.name),s('text',{class:'c',x:8,y:31},e.class));const d=s('text',{class:'r',x:75,y:53,'text-anchor':'middle'});n.append(d);high.append(n);nodes.set(e.name,{n,d})});
 g.replaceChildren(low,labels,high);fit();$('gnote').textContent=`${r.elements.length} elements`}
function rates(r,old,dt){const before=new Map((old?old.elements:[]).map(e=>[e.name,e]));const rate=new Map(),drop=new Map();
 r.elements.forEach(e=>{const b=before.get(e.name),d=x=>Object.values(x).reduce((a,c)=>a+c,0);rate.set(e.name,b?Math.max(0,e.packets-b.packets)/dt:0);drop.set(e.name,b?Math.max(0,d(e.drops)-d(b.drops))/dt:0);
  // Rates are between two looks: the first one knows how many, not how fast.
  const n=nodes.get(e.name);if(!n)return;const total=d(e.drops);n.n.setAttribute('class',drop.get(e.name)>0?'drop':'');n.d.textContent=total?b?`${short(drop.get(e.name))}/s dropped`:`${short(total)} dropped`:''});
 const outs=new Map(),ins=new Map();edges.forEach(({e})=>{outs.set(e.from,(outs.get(e.from)||0)+1);ins.set(e.to,(ins.get(e.to)||0)+1)});
 // Elements count what comes to them: an edge's rate is known where it is the only one at one of its ends.
 edges.forEach(({e,p,t})=>{const known=ins.get(e.to)===1?rate.get(e.to):outs.get(e.from)===1?rate.get(e.from)-drop.get(e.from):null;
  p.setAttribute('class',known>0?'flow':'');p.style.strokeWidth=known>0?Math.min(6,1.2+Math.log10(1+known)/2):1.2;t.textContent=known===null||!old?'':known>0?short(known)+'/s':''});find()}
function find(){const word=$('find').value.toLowerCase();nodes.forEach((v,name)=>v.n.classList.toggle('found',word!==''&&name.toLowerCase().includes(word)))}
async function get(path){const a=await fetch(path);const j=await a.json();if(!a.ok)throw new Error(j.error?j.error.message:a.status);return j}
// Packets that `sluice trace add` followed, the last first; those that were opened stay open.
let traced='';
async function traces(){const r=await get('/api/v1/trace?count=12'),key=JSON.stringify([r.asked,r.followed,r.missed,r.filter,r.packets.map(p=>p.number)]);if(key===traced)return;traced=key;
 $('tnote').textContent=r.asked?`${num(r.followed)} of ${num(r.asked)} followed${r.missed?', '+num(r.missed)+' missed':''}${r.filter?': '+r.filter:''}`:'';
 const box=$('traces'),open=new Set([...box.querySelectorAll('details[open]')].map(d=>d.dataset.number));
 if(!r.packets.length){box.replaceChildren(el('span','none: sluice trace add N [FILTER]','dim'));return}
 box.replaceChildren(...r.packets.reverse().map(p=>{const d=el('details');d.dataset.number=p.number;d.open=open.has(d.dataset.number);
  const f=p.fate,end=f.forwarded?'left by '+f.ends.map(e=>e.element).join(', '):'dropped: '+(f.reason||(f.ends[0]&&f.ends[0].reason))+(f.element?' at '+f.element:'');
  const sum=el('summary');sum.append(el('span',`${p.number} ${p.input} ${p.flow||p.bytes+' bytes'} `),el('span',end,f.forwarded?'green':'red'));d.append(sum);
  const t=el('table');(p.explanation?p.explanation.packets:[]).forEach(x=>x.way.forEach(w=>{const tr=el('tr');tr.append(el('td',w.element),el('td',w.class,'dim'),el('td',w.notes.join('; '),'t'));t.append(tr)}));d.append(t);return d}))}
let looks=0;
async function tick(){if(paused||document.hidden)return;
 try{const r=await get('/api/v1/report');r.at=performance.now();const dt=last?(r.at-last.at)/1000:1,d=f=>last?Math.max(0,r[f]-last[f])/dt:0;
  draw(r);rates(r,last,dt);$('what').textContent=`${r.configuration} on ${r.device} x${r.workers}, generation ${r.generation}`;
  $('in').textContent=last?short(d('packets_in'))+'/s':'-';$('out').textContent=last?short(d('packets_out'))+'/s':'-';$('drop').textContent=last?short(d('dropped'))+'/s':'-';$('drop').className='big'+(d('dropped')>0?' red':'');
  $('more').textContent=`${num(r.packets_in)} in, ${num(r.generated)} made, ${num(r.packets_out)} out, ${num(r.dropped)} dropped`;
  const drops=[];r.elements.forEach(e=>{const b=last&&last.elements.find(x=>x.name===e.name);for(const k in e.drops)drops.push([num(e.drops[k]),b?short(Math.max(0,e.drops[k]-(b.drops[k]||0))/dt)+'/s':'-',k,e.name,e.drops[k]])});
  table('drops',[['packets','n'],['rate','n'],['reason','red'],['element','']],drops.sort((a,b)=>b[4]-a[4]).slice(0,15).map(x=>x.slice(0,4)),'nothing was dropped');
  const times=[['latency','latency_ns'],['wait','wait_ns'],['through','through_ns'],['egress','egress_ns']].filter(([,f])=>r[f]),top=Math.log10(1+Math.max(1,...times.map(([,f])=>r[f].max)));
  const bar=v=>{const b=el('span',undefined,'bar');b.style.width=Math.max(2,160*Math.log10(1+v)/top)+'px';return b};
  table('times',[['',''],['p50','n'],['p99','n'],['max','n'],['p99, logarithmic','']],times.map(([n,f])=>[n,time(r[f].p50),time(r[f].p99),time(r[f].max),bar(r[f].p99)]),'');
  table('tables',[['table',''],['kind',''],['algorithm',''],['entries','n'],['memory','n'],['changed in','n']],r.tables.map(t=>[t.name,t.kind,t.algorithm||'-',num(t.entries),bytes(t.bytes),t.changed_in_generation?'generation '+t.changed_in_generation:'-']),'no tables');
  const ports=[];r.interfaces.forEach(p=>{for(let q=0;q<Math.max(p.rx.length,p.tx.length);q++){const x=p.rx[q],y=p.tx[q];ports.push([q?'':p.name,q?'':p.method,el('span',q?'':p.link,p.link==='up'?'green':'red'),q,x?num(x.packets):'-',x?num(x.missed+x.too_long+x.invalid):'-',y?num(y.packets):'-',y?num(y.full+y.failed):'-'])}});
  (r.sinks||[]).forEach(k=>ports.push([k.element,k.path||'-','','','-','-',num(k.packets),'-']));
  table('ports',[['port',''],['method or file',''],['link',''],['queue','n'],['received','n'],['lost','n'],['sent','n'],['not sent','n']],ports,'no ports');
  last=r;const lists=r.tables.filter(t=>t.kind==='acl'),rows=[];
  for(const t of lists.slice(0,8)){const a=await get('/api/v1/rules?hits=true&order=hits&count=12&table='+encodeURIComponent(t.name));a.rules.forEach(x=>rows.push([num(x.packets),x.file?`${x.file}:${x.line}`:`${t.name}:${x.rule}`,x.text,x.packets]))}
  table('rules',[['packets','n'],['place',''],['rule','t']],rows.sort((a,b)=>b[3]-a[3]).slice(0,12).map(x=>x.slice(0,3)),lists.length?'no rule has matched':'no access list');if(looks++%2===0)await traces();$('error').textContent=''}
 catch(e){$('error').textContent='no answer: '+e.message}}
function theme(){const now=document.documentElement.dataset.theme||(matchMedia('(prefers-color-scheme:dark)').matches?'dark':'light');document.documentElement.dataset.theme=now==='dark'?'light':'dark'}
function pause(){paused=!paused;$('pause').textContent=paused?'resume':'pause'}
$('pause').onclick=pause;$('theme').onclick=theme;$('find').oninput=find;
addEventListener('keydown',k=>{if(k.target===$('find')){if(k.key==='Escape')$('find').blur();return}if(k.ctrlKey||k.metaKey||k.altKey||!view)return;
 const step={ArrowLeft:[-1,0],ArrowRight:[1,0],ArrowUp:[0,-1],ArrowDown:[0,1]}[k.key];
 if(step){if(document.activeElement!==$('graph'))return;view.x+=step[0]*view.w/10;view.y+=step[1]*view.h/10;show()}
 else if(k.key===' '&&k.target.tagName!=='BUTTON')pause();else if(k.key==='f')fit();else if(k.key==='+')zoom(.8);else if(k.key==='-')zoom(1.25);else if(k.key==='t')theme();else if(k.key==='/')$('find').focus();else return;k.preventDefault()});
let drag=null;$('graph').onpointerdown=e=>{drag=[e.clientX,e.clientY];$('graph').setPointerCapture(e.pointerId)};$('graph').onpointerup=()=>drag=null;
$('graph').onpointermove=e=>{if(!drag)return;const f=Math.max(view.w/$('graph').clientWidth,view.h/$('graph').clientHeight);view.x-=(e.clientX-drag[0])*f;view.y-=(e.clientY-drag[1])*f;drag=[e.clientX,e.clientY];show()};
$('graph').addEventListener('wheel',e=>{if(!e.ctrlKey)return;e.preventDefault();zoom(e.deltaY>0?1.1:.9)},{passive:false});
tick();setInterval(tick,1000);
</script></body></html>
)page";

}  // namespace sluice
