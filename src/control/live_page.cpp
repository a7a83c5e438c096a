// host only
// The page that a running process serves: whole, so that a browser loads nothing else. It asks /api/v1 once a second
// while it is seen.
#include "control/windows.h"

namespace sluice {

const std::string_view kLivePage = R"page(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>sluice</title><link rel="icon" href="data:,">
<style>
:root{color-scheme:light;--bg:#f4f6f8;--card:#fff;--line:#dfe3e8;--text:#18202b;--dim:#5b6675;--edge:#b4bdc9;--node:#f7f9fb;--blue:#1a66d6;--red:#c4201d;--amber:#96610a;--grey:#6b7683;--green:#1a7f37;--on:#fff}
@media(prefers-color-scheme:dark){:root:not([data-theme=light]){color-scheme:dark;--bg:#0e1217;--card:#161b22;--line:#2a323d;--text:#e3e8ee;--dim:#96a1af;--edge:#4a5565;--node:#1d242e;--blue:#68acff;--red:#ff7069;--amber:#e0a83c;--grey:#96a1af;--green:#56c26a;--on:#0e1217}}
:root[data-theme=dark]{color-scheme:dark;--bg:#0e1217;--card:#161b22;--line:#2a323d;--text:#e3e8ee;--dim:#96a1af;--edge:#4a5565;--node:#1d242e;--blue:#68acff;--red:#ff7069;--amber:#e0a83c;--grey:#96a1af;--green:#56c26a;--on:#0e1217}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--text);font:14px/1.45 system-ui,"Segoe UI",Roboto,"Liberation Sans",sans-serif;font-variant-numeric:tabular-nums}
header{position:sticky;top:0;z-index:1;background:var(--card);border-bottom:1px solid var(--line);padding:.55rem 1rem;display:flex;flex-wrap:wrap;gap:.3rem .9rem;align-items:center}
h1{font-size:1.05rem;margin:0;overflow-wrap:anywhere}
h2{font-size:.95rem;margin:0;font-weight:600}
h3{font-size:.9rem;margin:0;font-weight:600;overflow-wrap:anywhere}
#facts{flex:1 1 20rem;color:var(--dim);overflow-wrap:anywhere}
#status{border-radius:1rem;padding:.05rem .65rem;border:1px solid var(--line);color:var(--dim);white-space:nowrap}
#status::before{content:"";display:inline-block;width:.5rem;height:.5rem;border-radius:50%;background:currentColor;margin-right:.4rem}
#status.live{color:var(--green)}#status.off{background:var(--amber);border-color:var(--amber);color:var(--on)}
main{max-width:1720px;margin:auto;padding:.8rem 1rem;display:grid;gap:.8rem;grid-template-columns:repeat(12,minmax(0,1fr))}
body.stale main,body.stale #facts,body.stale h1{filter:grayscale(1);opacity:.5}
section{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.75rem .9rem;grid-column:span 6;min-width:0}
section.wide{grid-column:1/-1}
.head{display:flex;flex-wrap:wrap;gap:.2rem .7rem;align-items:baseline;margin-bottom:.5rem}.head>:first-child{margin-right:auto}
.cards{grid-column:1/-1;display:grid;gap:.8rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,15.5rem),1fr))}
.card{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.6rem .9rem;min-width:0}
.flow{display:grid;grid-template-columns:minmax(0,1fr) 112px;gap:.1rem .6rem;align-items:center}#ports{grid-template-columns:repeat(auto-fit,minmax(min(100%,19rem),1fr))}#ports .flow{grid-template-columns:minmax(0,1fr) 88px}#ports .spark{width:88px;height:26px}
.big{font-size:1.3rem;font-weight:600;line-height:1.25}.unit{color:var(--dim)}
.spark{display:block;width:100%;height:34px;overflow:visible}.card .spark{width:112px}
.spark path{fill:none;stroke:var(--blue);stroke-width:1.5;vector-effect:non-scaling-stroke}.spark .area{fill:var(--blue);opacity:.14;stroke:none}
.spark.grey path{stroke:var(--grey)}.spark.grey .area{fill:var(--grey)}.spark.red path{stroke:var(--red)}.spark.red .area{fill:var(--red)}
.dim{color:var(--dim)}.lost{color:var(--red)}.malformed{color:var(--amber)}.policy{color:var(--grey)}.down{color:var(--amber)}.up{color:var(--green)}
.mono{font-family:ui-monospace,"DejaVu Sans Mono","Liberation Mono",monospace;font-size:12.5px}
table{border-collapse:collapse;width:100%}th{text-align:left;color:var(--dim);font-weight:500}
th,td{padding:.2rem .9rem .2rem 0;vertical-align:top}th:last-child,td:last-child{padding-right:0}
tr+tr td{border-top:1px solid var(--line)}
.n{text-align:right;white-space:nowrap}td.t,td.long{overflow-wrap:anywhere}td.t{min-width:9rem}td.bars{width:50%}
.bar{display:block;height:.55rem;margin-top:.4rem;background:var(--blue);border-radius:2px}
button,input{font:inherit;color:inherit;background:var(--bg);border:1px solid var(--line);border-radius:5px;padding:.1rem .55rem;max-width:100%}
button{cursor:pointer}button:hover{border-color:var(--dim)}:focus-visible{outline:2px solid var(--blue);outline-offset:1px}
button.cmd{overflow-wrap:anywhere;text-align:left;color:var(--dim)}button.cmd::before{content:"$ "}
details{padding:.2rem 0}details+details{border-top:1px solid var(--line)}summary{cursor:pointer;overflow-wrap:anywhere}details table{margin:.3rem 0 .4rem 1rem;width:calc(100% - 1rem)}
footer{grid-column:1/-1;color:var(--dim);text-align:center}kbd{border:1px solid var(--line);border-radius:3px;padding:0 .3rem;font-size:12px}
#graph{display:block;margin:auto}#list{display:none}
#graph .edge{fill:none;stroke:var(--edge);stroke-width:1.3;stroke-linejoin:round}#graph .edge.flow{stroke:var(--blue);display:inline}
#graph .box{fill:var(--node);stroke:var(--edge)}#graph .malformed .box{stroke:var(--amber)}#graph .lost .box{stroke:var(--red);stroke-width:2}#graph .found .box{stroke:var(--blue);stroke-width:3}
#graph text{fill:var(--text);font-size:12px}#graph .name{font-weight:600}#graph .class{fill:var(--dim);font-size:11px}#graph .idle text{fill:var(--dim)}
#graph .rate{font-size:11px;fill:var(--blue)}#graph .label{font-size:11px;fill:var(--dim);paint-order:stroke;stroke:var(--card);stroke-width:4px}
#graph .drop{font-size:11px;paint-order:stroke;stroke:var(--card);stroke-width:3px}#graph .drop.policy{fill:var(--grey)}#graph .drop.malformed{fill:var(--amber)}#graph .drop.lost{fill:var(--red)}
@media(max-width:1000px){section{grid-column:1/-1}}
@media(max-width:600px){
main{padding:.6rem;gap:.6rem}.cards{gap:.6rem}#sums{grid-template-columns:repeat(2,minmax(0,1fr))}#sums .flow{grid-template-columns:minmax(0,1fr)}#sums .spark{width:100%}.big{font-size:1.15rem}header{position:static;padding:.55rem .7rem}section,.card{padding:.6rem .7rem}
#graph{display:none}#list{display:block}kbd,footer{display:none}
table.rows tr:first-child{display:none}table.rows,table.rows tbody{display:block}
table.rows tr{display:flex;flex-wrap:wrap;gap:0 .8rem;padding:.3rem 0}table.rows tr+tr+tr{border-top:1px solid var(--line)}table.rows tr+tr td{border:0}
table.rows td{padding:0;width:auto}table.rows td.t{flex:1 0 100%}table.rows td[data-label]:not([data-label=""])::before{content:attr(data-label) " ";color:var(--dim)}
table.rows .bars{display:none}}
</style></head><body>
<header><h1 id="host">sluice</h1><span id="facts"></span><span id="status" role="status">connecting</span>
<span><input id="find" placeholder="find an element" aria-label="Find an element" size="14"> <button id="pause">pause</button> <button id="theme">theme</button></span></header>
<main>
<div class="cards" id="sums"></div>
<div class="cards" id="ports"></div>
<section class="wide"><div class="head"><h2>Graph</h2><button id="fold" hidden></button><button class="cmd mono" data-cmd="show runtime --interval 1"></button></div><div id="canvas"><svg id="graph" role="img" aria-label="The elements from left to right, with their rates"></svg><div id="list"></div></div></section>
<section><div class="head"><h2>Drops</h2><button class="cmd mono" data-cmd="show drops --interval 1"></button></div><div id="drops"></div></section>
<section><div class="head"><h2>Rules that match most</h2><button class="cmd mono" data-cmd="show rules --by-hits"></button></div><div id="rules"></div></section>
<section><div class="head"><h2>Time of packets <span class="dim">since the start of the run</span></h2></div><div id="times"></div></section>
<section><div class="head"><h2>Tables</h2><button class="cmd mono" data-cmd="show tables"></button></div><div id="tables"></div></section>
<section class="wide"><div class="head"><h2>Traces <span class="dim" id="tnote"></span></h2><button class="cmd mono" data-cmd="trace add 20 'udp from any to any'"></button></div><div id="traces"></div></section>
<footer><kbd>space</kbd> pause · <kbd>/</kbd> find · <kbd>i</kbd> idle elements · <kbd>t</kbd> theme</footer>
</main>
<script>
'use strict';
// Functions of their arguments alone: tests/page_test.py calls them.
const WINDOW_S=120;
const num=n=>n.toLocaleString('en-US');
const count=(n,what)=>`${num(n)} ${what}${n===1?'':'s'}`;
// Three digits, with the prefix that they need.
function scaled(n,unit){let i=0;n=Math.max(0,n);const text=x=>x<9.995&&x!==Math.round(x)?x.toFixed(2):x<99.95?x.toFixed(1).replace(/\.0$/,''):x.toFixed(0);
 while(i<4&&+text(n)>=1000){n/=1000;i++}return (i===0&&n>=10?n.toFixed(0):text(n))+' '+['','k','M','G','T'][i]+unit}
const pps=n=>scaled(n,'pps'),bits=bytes=>scaled(bytes*8,'bit/s');
const size=n=>n>=1073741824?(n/1073741824).toFixed(1)+' GiB':n>=1048576?(n/1048576).toFixed(1)+' MiB':n>=1024?(n/1024).toFixed(1)+' KiB':n+' B';
const time=ns=>ns>=1e9?(ns/1e9).toFixed(2)+' s':ns>=1e6?(ns/1e6).toFixed(2)+' ms':ns>=1e3?(ns/1e3).toFixed(1)+' µs':ns+' ns';
function age(s){s=Math.max(0,Math.floor(s));const d=Math.floor(s/86400),h=Math.floor(s/3600)%24,m=Math.floor(s/60)%60;
 return d?`${d} d ${h} h`:h?`${h} h ${m} min`:m?`${m} min ${s%60} s`:`${s} s`}
// Layers by the longest way from a source without the edges that close a cycle; edges over several layers get a place of
// their own in each; order and heights go by neighbours. An edge runs in the gaps between columns and in its own places,
// so that it crosses no box. Columns that the width has no room for go on below, as lines of a text do.
function layout(names,edges,width,labels={}){
 const W=Math.min(190,Math.max(118,...names.map(n=>n.length*7.4+20),...names.map(n=>(labels[n]||'').length*6.4+20))),H=60,GAP=28,FREE=18;
 const out=new Map(names.map(n=>[n,[]])),pairs=new Map();
 edges.forEach(e=>{if(!out.has(e.from)||!out.has(e.to))return;const k=e.from+'\n'+e.to;if(pairs.has(k)){pairs.get(k).edges.push(e);return}
  pairs.set(k,{from:e.from,to:e.to,edges:[e]});out.get(e.from).push(e.to)});
 const state=new Map(),order=[],back=new Set(),entered=new Set(edges.filter(e=>e.from!==e.to).map(e=>e.to));
 for(const root of[...names].sort((a,b)=>entered.has(a)-entered.has(b))){if(state.get(root))continue;const stack=[[root,0]];state.set(root,1);
  while(stack.length){const top=stack[stack.length-1],next=out.get(top[0])[top[1]++];
   if(next===undefined){state.set(top[0],2);order.push(top[0]);stack.pop()}
   else if(state.get(next)===1)back.add(top[0]+'\n'+next);
   else if(!state.get(next)){state.set(next,1);stack.push([next,0])}}}
 const layer=new Map(names.map(n=>[n,0]));
 order.reverse().forEach(n=>out.get(n).forEach(m=>{if(!back.has(n+'\n'+m))layer.set(m,Math.max(layer.get(m),layer.get(n)+1))}));
 const layers=[],slots=new Map();
 const slot=(id,l,half)=>{const p={id,layer:l,half,y:0,left:[],right:[]};(layers[l]=layers[l]||[]).push(p);slots.set(id,p);return p};
 names.forEach(n=>slot(n,layer.get(n),H/2+FREE));
 const forward=[],cycles=[];
 pairs.forEach((pair,key)=>{if(back.has(key)){cycles.push(pair);return}
  const chain=[slots.get(pair.from)];for(let l=layer.get(pair.from)+1;l<layer.get(pair.to);l++)chain.push(slot(key+'\n'+l,l,9));
  chain.push(slots.get(pair.to));const weight=chain.length>2?2:pair.edges.some(e=>e.output===0)?4:1;
  for(let i=0;i+1<chain.length;i++){chain[i].right.push({to:chain[i+1],weight});chain[i+1].left.push({to:chain[i],weight})}
  forward.push({pair,chain})});
 const mean=(p,side,of)=>{let sum=0,all=0;p[side].forEach(({to,weight})=>{sum+=of(to)*weight;all+=weight});return all?sum/all:null};
 const rank=()=>layers.forEach(l=>l.forEach((p,i)=>p.rank=i-(l.length-1)/2));rank();
 for(let pass=0;pass<8;pass++){const side=pass%2?'right':'left';
  (pass%2?[...layers].reverse():layers).forEach(l=>{l.forEach(p=>{const m=mean(p,side,q=>q.rank);p.key=m===null?p.rank:m});
   l.sort((a,b)=>a.key-b.key);l.forEach((p,i)=>p.rank=i-(l.length-1)/2)})}
 // The nearest heights to those that are wanted, in order and apart: pools of neighbours that would overlap.
 const settle=(l,side)=>{const pools=[];let at=0;l.forEach((p,i)=>{if(i)at+=l[i-1].half+p.half;p.at=at;const m=mean(p,side,q=>q.y);
   pools.push({sum:(m===null?p.y:m)-at,n:1});
   while(pools.length>1){const b=pools[pools.length-1],a=pools[pools.length-2];if(a.sum/a.n<=b.sum/b.n)break;a.sum+=b.sum;a.n+=b.n;pools.pop()}});
  let i=0;pools.forEach(pool=>{for(let k=0;k<pool.n;k++,i++)l[i].y=pool.sum/pool.n+l[i].at})};
 layers.forEach(l=>settle(l,'left'));
 for(let pass=0;pass<4;pass++){[...layers].reverse().forEach(l=>settle(l,'right'));layers.forEach(l=>settle(l,'left'))}
 const columns=layers.length,fits=Math.max(1,Math.floor((width-40+GAP)/(W+GAP))),bands=Math.ceil(columns/fits),per=Math.ceil(columns/bands);
 const margin=bands>1?36:cycles.length?20:2,gap=per>1?Math.min(110,Math.max(GAP,(width-2*margin-per*W)/(per-1))):GAP;
 const x=l=>margin+(l%per)*(W+gap),band=l=>Math.floor(l/per);
 // Lanes below a band: of edges that go back, and of those that go on in the next band.
 const lanes=Array(bands).fill(0),tops=[],heights=[];
 const crossing=forward.flatMap(({pair,chain})=>chain.slice(1).map((p,i)=>({pair,a:chain[i],b:p})).filter(({a,b})=>band(a.layer)!==band(b.layer)));
 crossing.forEach(c=>c.lane=lanes[band(c.a.layer)]++);
 cycles.forEach(c=>{c.lane=lanes[band(layer.get(c.from))]++;c.up=band(layer.get(c.from))===band(layer.get(c.to))?c.lane:lanes[band(layer.get(c.to))]++});
 let y=4;for(let b=0;b<bands;b++){const all=layers.slice(b*per,(b+1)*per).flat(),low=Math.min(...all.map(p=>p.y-p.half)),high=Math.max(...all.map(p=>p.y+p.half));
  tops[b]=y-low-FREE+6;heights[b]=high;y+=high-low-FREE+lanes[b]*11+(b+1<bands||lanes[b]?16:4)}
 layers.flat().forEach(p=>{p.x=x(p.layer);p.py=Math.round(p.y+tops[band(p.layer)])});
 const laneY=(b,n)=>tops[b]+heights[b]+5+n*11;
 // Several edges at one side of a box begin apart from each other.
 const ends=new Map();const end=(p,side,pair)=>{const k=side+p.id;if(!ends.has(k))ends.set(k,[]);ends.get(k).push(pair)};
 forward.forEach(({pair,chain})=>{end(chain[0],'r',{pair,y:chain[1].py+(band(chain[1].layer)!==band(chain[0].layer)?1e6:0)});end(chain[chain.length-1],'l',{pair,y:chain[chain.length-2].py-(band(chain[chain.length-2].layer)!==band(chain[chain.length-1].layer)?1e6:0)})});
 cycles.forEach(pair=>{end(slots.get(pair.from),'r',{pair,y:1e7});end(slots.get(pair.to),'l',{pair,y:1e7})});
 ends.forEach(l=>l.sort((a,b)=>a.y-b.y));
 const port=(p,side,pair)=>{if(!ends.has(side+p.id))return p.py;const l=ends.get(side+p.id),i=l.findIndex(e=>e.pair===pair);return p.py+(i-(l.length-1)/2)*Math.min(12,(H-16)/l.length)};
 const wired=(p,side,pair)=>p.half===9?p.py:port(p,side,pair);
 const line=points=>{let d=`M${points[0]}`;for(let i=1;i<points.length;i++){const[px,py]=points[i-1],[cx,cy]=points[i];
   if(i+1===points.length){d+=`L${cx} ${cy}`;break}const[nx,ny]=points[i+1],r=Math.min(7,Math.hypot(cx-px,cy-py)/2,Math.hypot(nx-cx,ny-cy)/2);
   const to=(ax,ay)=>{const len=Math.hypot(ax-cx,ay-cy)||1;return`${cx+(ax-cx)*r/len} ${cy+(ay-cy)*r/len}`};d+=`L${to(px,py)}Q${cx} ${cy} ${to(nx,ny)}`}return d};
 const right=margin*2+per*W+(per-1)*gap,paths=[];
 forward.forEach(({pair,chain})=>{let d='';for(let i=0;i+1<chain.length;i++){const a=chain[i],b=chain[i+1],y0=wired(a,'r',pair),y1=wired(b,'l',pair),x0=a.x+W,x1=b.x,c=crossing.find(z=>z.pair===pair&&z.a===a);
   d+=i?`L${x0} ${y0}`:`M${x0} ${y0}`;
   if(c){const off=8+(c.lane*5)%(margin-12),yl=laneY(band(a.layer),c.lane);d+=line([[x0,y0],[right-margin+off,y0],[right-margin+off,yl],[margin-off,yl],[margin-off,y1],[x1,y1]]).replace('M','L')}
   else{const bend=(x1-x0)/2;d+=`C${x0+bend} ${y0} ${x1-bend} ${y1} ${x1} ${y1}`}}
  const a=chain[0];paths.push({from:pair.from,to:pair.to,edges:pair.edges,d,lx:a.x+W+4,ly:wired(a,'r',pair)-4})});
 cycles.forEach((pair,k)=>{const a=slots.get(pair.from),b=slots.get(pair.to),y0=port(a,'r',pair),y1=port(b,'l',pair),room=Math.max(1,Math.min(gap,2*margin)-16),off=8+(k*5)%room;
  const points=[[a.x+W,y0],[a.x+W+Math.min(off,a.layer%per===per-1?margin-4:gap-6),y0]],p=band(a.layer),q=band(b.layer),xa=points[1][0],xb=b.x-Math.min(off,margin-4);
  points.push([xa,laneY(p,pair.lane)]);if(p!==q){points.push([margin-off%margin,laneY(p,pair.lane)],[margin-off%margin,laneY(q,pair.up)])}
  points.push([xb,laneY(q,pair.up)],[xb,y1],[b.x,y1]);paths.push({from:pair.from,to:pair.to,edges:pair.edges,d:line(points),lx:a.x+W+4,ly:y0-4})});
 return{nodes:new Map(names.map(n=>[n,{x:slots.get(n).x,y:slots.get(n).py-H/2}])),order:layers.flat().filter(p=>p.half!==9).map(p=>p.id),paths,W,H,gap,width:Math.max(right,10),height:y+6}}
// What there is to draw: elements without a packet in the window are folded away, unless nothing leaves.
function seen(names,edges,idle,all){const left=new Set(edges.map(e=>e.from));return all||!names.some(n=>!left.has(n)&&!idle.has(n))?names:names.filter(n=>!idle.has(n))}
// Rates of edges, null where they are not known. Elements count what comes to them, so the rates of the edges to one have
// a known sum; an element with one output passes on what it does not drop.
function edgeRates(edges,rate,dropped){const known=edges.map(e=>rate(e.from)===0?0:edges.filter(x=>x.from===e.from).length===1?Math.max(0,rate(e.from)-dropped(e.from)):null);
 edges.forEach((e,i)=>{if(edges.filter(x=>x.to===e.to).length===1)known[i]=rate(e.to)});
 for(let again=true;again;){again=false;for(const to of new Set(edges.map(e=>e.to))){const into=edges.map((e,i)=>i).filter(i=>edges[i].to===to),open=into.filter(i=>known[i]===null);
  if(open.length===1){known[open[0]]=Math.max(0,rate(to)-into.reduce((a,i)=>a+(known[i]||0),0));again=true}}}
 return known}
// Points of the last two minutes as a line in a field of 120 x 34, and its greatest value.
function curve(points,now){const max=Math.max(0,...points.map(p=>p.v)),at=p=>`${(WINDOW_S-(now-p.t)).toFixed(1)} ${max?(32-30*p.v/max).toFixed(1):32}`;return{d:points.length<2?'':'M'+points.map(at).join('L'),max}}

const $=id=>document.getElementById(id),SVG='http://www.w3.org/2000/svg';
function el(tag,text,cls,title){const e=document.createElement(tag);if(text!==undefined&&text!==null)e.textContent=text;if(cls)e.className=cls;if(title)e.title=title;return e}
function s(tag,attrs,text){const e=document.createElementNS(SVG,tag);for(const k in attrs)e.setAttribute(k,attrs[k]);if(text!==undefined)e.textContent=text;return e}
function table(where,heads,rows,none){const box=$(where);if(!rows.length){box.replaceChildren(el('span',none,'dim'));return}
 const t=el('table',null,'rows'),h=el('tr');heads.forEach(([x,c,tip])=>h.append(el('th',x,c,tip)));t.append(h);
 rows.forEach(r=>{const tr=el('tr');r.forEach((c,i)=>{const td=el('td',null,heads[i][1]);if(td.className==='w'&&(c.textContent||c).length>24)td.className='long';if(heads[i][3])td.dataset.label=heads[i][3];if(c instanceof Node)td.append(c);else td.textContent=c;tr.append(td)});t.append(tr)});box.replaceChildren(t)}
// History by name: what a rate was at each look of the last two minutes.
const past=new Map();
function keep(name,v,t){if(!past.has(name))past.set(name,[]);const l=past.get(name);l.push({t,v});while(l.length&&l[0].t<t-WINDOW_S)l.shift()}
function spark(name,now,say,cls){const{d,max}=curve(past.get(name)||[],now),v=s('svg',{class:'spark '+(cls||''),viewBox:'0 0 120 34',preserveAspectRatio:'none',role:'img','aria-label':'the last two minutes'});
 v.append(s('title',{},`the last two minutes, at most ${say(max)}`));
 if(d){const first=/^M([\d.-]+)/.exec(d)[1];v.append(s('path',{class:'area',d:`${d}L120 34L${first} 34Z`}),s('path',{d}))}return v}
let last=null,answered=0,failed=null,old=0,paused=false,showIdle=false,drawn='',nodes=new Map(),edges=[],active=new Map(),rates=new Map();
const total=o=>Object.values(o).reduce((a,b)=>a+b,0);
const kindOf=(r,reason)=>r.drop_kinds[reason]||'policy';
const worst=kinds=>kinds.has('lost')?'lost':kinds.has('malformed')?'malformed':'policy';
// Frames that a port could not take, and packets that were to leave and did not.
function losses(r){let n=0;r.interfaces.forEach(p=>p.rx.forEach(q=>n+=q.missed+q.too_long+q.invalid));for(const k in r.drops)if(kindOf(r,k)==='lost')n+=r.drops[k];return n}
function digest(r,now){const b=last,dt=b?(r.at-b.at)/1000:0,per=(x,y)=>b&&dt>0?Math.max(0,x-y)/dt:0,got={dt};
 for(const f of['packets_in','bytes_in','packets_out','bytes_out','dropped'])got[f]=per(r[f],b?b[f]:0);
 got.lost=per(losses(r),b?losses(b):0);got.kinds={policy:0,malformed:0,lost:0};
 for(const k in r.drops)got.kinds[kindOf(r,k)]+=per(r.drops[k],b?b.drops[k]||0:0);
 if(b)for(const f of['packets_in','packets_out','dropped','lost'])keep(f,got[f],now);
 const before=new Map((b?b.elements:[]).map(e=>[e.name,e]));rates=new Map();
 r.elements.forEach(e=>{const p=before.get(e.name),drops=Object.entries(e.drops).map(([reason,n])=>({reason,n,rate:p?per(n,p.drops[reason]||0):0,kind:kindOf(r,reason)})).sort((x,y)=>y.rate-x.rate||y.n-x.n);
  rates.set(e.name,{e,rate:p?per(e.packets,p.packets):0,bytes:p?per(e.bytes,p.bytes):0,drops});
  // The page has not seen what was before it: an element that has had packets counts as busy for one window.
  if(p?e.packets>p.packets:e.packets>0)active.set(e.name,now)});
 return got}
function sums(r,got,now){const card=(title,tip,name,value,second,note,cls)=>{const c=el('div',null,'card');c.title=tip;const f=el('div',null,'flow'),l=el('div');
  l.append(el('div',title,'dim'),el('div',value,'big '+(cls||'')),el('div',second,'unit'));f.append(l,spark(name,now,pps,cls==='lost'?'red':name==='dropped'||name==='lost'?'grey':''));c.append(f,note instanceof Node?note:el('div',note,'dim'));return c};
 const known=last!==null,rate=v=>known?pps(v):'–',kinds=el('div');
 const parts=['policy','malformed','lost'].filter(k=>got.kinds[k]>0);parts.forEach((k,i)=>kinds.append(el('span',`${i?' · ':''}${k} ${pps(got.kinds[k])}`,k)));
 if(!parts.length)kinds.append(el('span',r.dropped?'none now':'none since the start','dim'));
 const lost=losses(r);
 $('sums').replaceChildren(
  card('In','Packets and bits that came in, by all inputs','packets_in',rate(got.packets_in),known?bits(got.bytes_in):' ',count(r.packets_in,'packet')),
  card('Out','Packets and bits that left, by all outputs','packets_out',rate(got.packets_out),known?bits(got.bytes_out):' ',count(r.packets_out,'packet')+(r.generated?`, ${num(r.generated)} generated here`:'')),
  card('Drops','Packets that were dropped: by policy (rules, routes, rates), as they are malformed, or lost','dropped',rate(got.dropped),count(r.dropped,'packet'),kinds),
  card('Lost','Packets that ports, queues or memory had no room for, and packets whose next hop is not resolved','lost',rate(got.lost),count(lost,'packet'),lost?got.lost>0?'being lost now':'none now':'none since the start',got.lost>0?'lost':''))}
function ports(r,now){const cards=[],card=(name,title,note,flows,lost)=>{const c=el('div',null,'card'),h=el('div',null,'head');h.append(el('h3',name,null,title),note);h.style.marginBottom='.2rem';c.append(h);
  flows.forEach(([dir,tip,key,p,bytes])=>{const f=el('div',null,'flow');f.title=tip;f.append(el('div',`${dir} ${p===null?'–':`${pps(p)}, ${bits(bytes)}`}`),spark(key,now,pps));c.append(f)});if(lost)c.append(el('div',lost,'lost'));cards.push(c)};
 const sum=(l,f)=>l.reduce((a,q)=>a+q[f],0),per=(x,y)=>last&&r.dt>0?Math.max(0,x-y)/r.dt:null,busy=(key,v)=>{if(v!==null)keep(key,v,now);return v};
 r.interfaces.forEach(p=>{const b=last&&last.interfaces.find(x=>x.name===p.name)||{rx:[],tx:[]},flows=[];
  for(const[side,dir,what]of[['rx','in','received'],['tx','out','sent']])if(p[side].length)flows.push([dir,`${num(sum(p[side],'packets'))} packets ${what}`+(p[side].length>1?': '+p[side].map((q,i)=>`queue ${i} ${num(q.packets)}`).join(', '):''),
    p.name+'\n'+side,busy(p.name+'\n'+side,per(sum(p[side],'packets'),sum(b[side],'packets'))),per(sum(p[side],'bytes'),sum(b[side],'bytes'))]);
  const lost=[['rx','missed','RX ring full'],['rx','too_long','too long'],['rx','invalid','invalid'],['tx','full','TX ring full'],['tx','failed','not sent']].map(([side,f,say])=>[sum(p[side],f),say]).filter(([n])=>n);
  card(p.name,`${p.method}, ${p.mode}, MTU ${p.mtu}, ${count(Math.max(p.rx.length,p.tx.length),'queue')}`,el('span',`${p.method} · ${p.link}`,p.link==='up'?'up':'down'),flows,lost.length?'lost '+lost.map(([n,say])=>`${num(n)} (${say})`).join(', '):'')});
 const entered=new Set(r.edges.map(e=>e.to)),left=new Set(r.edges.map(e=>e.from));
 r.elements.forEach(e=>{const d=rates.get(e.name),way=!entered.has(e.name)?'in':!left.has(e.name)?'out':'';
  if(!way||/Device$|^Discard$|^Idle$/.test(e.class)||(!entered.has(e.name)&&!left.has(e.name)))return;const k=(r.sinks||[]).find(x=>x.element===e.name),key='port\n'+e.name;
  card(k&&k.path?k.path.replace(/.*\//,''):e.name,k&&k.path||e.name,el('span',e.class,'dim'),[[way,`${num(e.packets)} packets`,key,busy(key,last?d.rate:null),d.bytes]],'')});
 $('ports').replaceChildren(...cards)}
function graph(r,now){const names=r.elements.map(e=>e.name),idle=new Set(names.filter(n=>!(active.get(n)>now-WINDOW_S))),shown=seen(names,r.edges,idle,showIdle),hidden=names.length-shown.length;
 const fold=names.length>shown.length||(showIdle&&idle.size>0&&idle.size<names.length);$('fold').hidden=!fold;
 $('fold').textContent=showIdle?'fold idle elements':`show ${count(hidden,'idle element')}`;$('fold').title='Elements without a packet in the last two minutes';
 const width=$('canvas').clientWidth,key=JSON.stringify([shown,r.edges,width]);
 if(key!==drawn){drawn=key;draw(r,shown,names,width)}
 nodes.forEach((v,name)=>{const d=rates.get(name),drop=d.drops.filter(x=>x.rate>0),kinds=new Set(drop.map(x=>x.kind));
  v.g.setAttribute('class',(drop.length?worst(kinds):'')+(idle.has(name)?' idle':''));v.rate.textContent=last?pps(d.rate):'';
  const all=d.drops.reduce((a,x)=>a+x.rate,0),top=drop[0];v.drop.setAttribute('class','drop '+(drop.length?worst(kinds):''));
  const lost=top?`− ${pps(all)}`:'';v.drop.textContent=drop.length===1&&`${lost} ${top.reason}`.length*6.1<=v.room?`${lost} ${top.reason}`:lost;
  v.tip.textContent=`${name} :: ${d.e.class}\n${count(d.e.packets,'packet')}, ${size(d.e.bytes)}`+(last?`\n${pps(d.rate)}, ${bits(d.bytes)}`:'')+d.drops.map(x=>`\n${x.reason} ${num(x.n)}, ${pps(x.rate)}`).join('')+(v.idle.length?`\nleads to idle: ${v.idle.join(', ')}`:'')});
 const value=n=>rates.get(n)?rates.get(n).rate:0,known=edgeRates(r.edges,value,n=>rates.get(n)?rates.get(n).drops.reduce((a,x)=>a+x.rate,0):0),per=new Map(r.edges.map((e,i)=>[e,known[i]]));
 edges.forEach(({path,p,t,tip})=>{const own=r.edges.filter(e=>e.from===path.from&&e.to===path.to),v=own.reduce((a,e)=>a===null||per.get(e)===null?null:a+per.get(e),0),outs=r.edges.filter(e=>e.from===path.from&&e.to!==path.to).length;
  p.setAttribute('class','edge'+(v>0?' flow':''));p.style.strokeWidth=v>0?Math.min(5,1.3+Math.log10(1+v)/2):1.3;
  tip.textContent=own.map(e=>`${e.from} [${e.output}] → [${e.input}] ${e.to}`).join('\n')+(v===null||!last?'':`\n${pps(v)}`);
  if(t)t.textContent=v>0&&last&&outs?pps(v):''});
 const list=shown.length?order(r,shown):[];
 table('list',[['element','w'],['class','dim'],['rate','n'],['drops','t']],list.map(n=>{const d=rates.get(n),drop=d.drops.filter(x=>x.rate>0),box=el('span');
  drop.forEach((x,i)=>box.append(el('span',`${i?', ':''}− ${pps(x.rate)} ${x.reason}`,x.kind)));return[el('b',n),d.e.class===n?'':d.e.class,last?pps(d.rate):'–',box]}),'no elements');find()}
let listed=[];const order=(r,shown)=>listed.length===shown.length?listed:shown;
function draw(r,shown,names,width){const classes=Object.fromEntries(r.elements.map(e=>[e.name,e.class])),g=layout(shown,r.edges,Math.max(320,width),classes),low=s('g'),high=s('g'),labels=s('g');nodes=new Map();edges=[];listed=g.order;
 g.paths.forEach(path=>{const p=s('path',{class:'edge',d:path.d}),t=s('text',{class:'label',x:path.lx,y:path.ly}),tip=s('title');p.append(tip);low.append(p);labels.append(t);edges.push({path,p,t:g.gap<58?null:t,tip})});
 const cut=(x,w)=>x.length*w>g.W-14?x.slice(0,Math.floor((g.W-20)/w))+'…':x;
 shown.forEach(n=>{const at=g.nodes.get(n),v=s('g',{transform:`translate(${at.x},${at.y})`}),tip=s('title'),rate=s('text',{class:'rate',x:10,y:51}),drop=s('text',{class:'drop',x:g.W/2,y:g.H+13,'text-anchor':'middle'});
  const idle=[...new Set(r.edges.filter(e=>e.from===n&&!nodes.has(e.to)&&!shown.includes(e.to)).map(e=>e.to))];
  v.append(tip,s('rect',{class:'box',width:g.W,height:g.H,rx:6}),s('text',{class:'name',x:10,y:19},cut(n,7.2)),s('text',{class:'class',x:10,y:35},cut(classes[n],6.2)),rate,drop);
  if(idle.length)v.append(s('text',{class:'class',x:g.W-8,y:51,'text-anchor':'end'},`+${idle.length} idle`));
  high.append(v);nodes.set(n,{g:v,rate,drop,tip,idle,room:g.W+g.gap-8})});
 const svg=$('graph');svg.setAttribute('width',g.width);svg.setAttribute('height',g.height);svg.setAttribute('viewBox',`0 0 ${g.width} ${g.height}`);svg.replaceChildren(low,high,labels)}
function find(){const word=$('find').value.toLowerCase();nodes.forEach((v,name)=>v.g.classList.toggle('found',word!==''&&name.toLowerCase().includes(word)))}
let ruled=new Map();
function tables(r,got){
 const before=last||{elements:[]},drops=[];r.elements.forEach(e=>rates.get(e.name).drops.forEach(x=>drops.push([last?pps(x.rate):'–',num(x.n),el('span',x.reason,x.kind,x.kind),e.name,x.rate,x.n])));
 table('drops',[['rate','n'],['packets','n','Since the start of the run','packets'],['reason','w','Grey: policy; amber: malformed packets; red: lost'],['element','w','','at']],drops.sort((a,b)=>b[4]-a[4]||b[5]-a[5]).slice(0,15).map(x=>x.slice(0,4)),'nothing was dropped');
 const times=[['processing','latency_ns','From reading a packet to the end of its processing'],['waiting','wait_ns','Of batches for a worker'],['read to written','through_ns','From reading a packet to writing it'],['writing','egress_ns','From the end of processing to written']].filter(([,f])=>r[f]&&r[f].max),top=Math.log10(1+Math.max(1,...times.map(([,f])=>r[f].max)));
 const bar=v=>{const b=el('span',null,'bar');b.style.width=Math.max(1,100*Math.log10(1+v)/top)+'%';return b};
 table('times',[['','w'],['p50','n','Half of the packets take at most this','p50'],['p99','n','99 of 100 packets take at most this','p99'],['max','n','','max'],['p99, logarithmic','bars']],times.map(([n,f,tip])=>[el('span',n,'',tip),time(r[f].p50),time(r[f].p99),time(r[f].max),bar(r[f].p99)]),'no packet was timed');
 table('tables',[['table','w'],['kind',''],['algorithm','w'],['entries','n','','entries'],['memory','n'],['changed','n','Generation of the last change','changed']],r.tables.map(t=>[el('b',t.name),t.kind,t.algorithm||'–',num(t.entries),size(t.bytes),t.changed_in_generation?'generation '+t.changed_in_generation:'–']),'no tables');
 const now=new Map(),rows=(r.rules||[]).map(x=>{const place=x.file?`${x.file.replace(/.*\//,'')}:${x.line}`:`${x.table}:${x.rule}`,key=[x.table,place,x.text].join('\n');now.set(key,(now.get(key)||0)+x.packets);
  const rate=last&&ruled.has(key)&&got.dt>0?Math.max(0,now.get(key)-ruled.get(key))/got.dt:null;return[rate===null?'–':pps(rate),num(x.packets),el('span',place,'',`${x.table}: ${x.file||''}`),el('span',x.text,'mono'),rate||0,x.packets]});ruled=now;
 table('rules',[['rate','n'],['packets','n','Since the start of the run','packets'],['place','w','Table or file, and line'],['rule','t']],rows.sort((a,b)=>b[4]-a[4]||b[5]-a[5]).slice(0,12).map(x=>x.slice(0,4)),r.tables.some(t=>t.kind==='acl')?'no rule has matched':'no access list')}
async function get(path){const stop=new AbortController(),timer=setTimeout(()=>stop.abort(),5000);
 try{const a=await fetch(path,{signal:stop.signal}),j=await a.json();if(!a.ok)throw new Error(j.error?j.error.message:a.status);return[j,+(a.headers.get('Age')||0)]}finally{clearTimeout(timer)}}
// Packets that `sluice trace add` followed, the last first; those that were opened stay open.
let traced='';
async function traces(){const[r]=await get('/api/v1/trace?count=12'),key=JSON.stringify([r.asked,r.followed,r.missed,r.filter,r.packets.map(p=>p.number)]);if(key===traced)return;traced=key;
 $('tnote').textContent=r.asked?`${num(r.followed)} of ${num(r.asked)} followed${r.missed?', '+num(r.missed)+' missed':''}${r.filter?': '+r.filter:''}`:'';
 const box=$('traces'),open=new Set([...box.querySelectorAll('details[open]')].map(d=>d.dataset.number));
 if(!r.packets.length){box.replaceChildren(el('span','No packet was followed. The command shows the way of the next 20 packets that match.','dim'));return}
 box.replaceChildren(...r.packets.reverse().map(p=>{const d=el('details');d.dataset.number=p.number;d.open=open.has(d.dataset.number);
  const f=p.fate,reason=f.reason||(f.ends[0]&&f.ends[0].reason),end=f.forwarded?'left by '+f.ends.map(e=>e.element).join(', '):`dropped: ${reason}${f.element?' at '+f.element:''}`;
  const sum=el('summary');sum.append(el('span',`${p.number} ${p.input} ${p.flow||p.bytes+' bytes'} `),el('span',end,f.forwarded?'up':last?kindOf(last,reason):'policy'));d.append(sum);
  const t=el('table',null,'rows');t.append(el('tr'));(p.explanation?p.explanation.packets:[]).forEach(x=>x.way.forEach(w=>{const tr=el('tr');tr.append(el('td',w.element,'w'),el('td',w.class,'dim'),el('td',w.notes.join('; '),'t mono'));t.append(tr)}));d.append(t);return d}))}
function showStatus(){const p=$('status'),ago=(performance.now()-answered)/1000;let cls='live',text='live';
 if(failed!==null){cls='off';text=answered?`disconnected ${age(ago)} ago`:`no answer`;p.title=failed}else if(!answered){cls='';text='connecting'}
 else if(paused){cls='';text=`paused ${age(ago)} ago`;p.title=''}else if(old>1){cls='off';text=`figures are ${age(old)} old`;p.title='A change of the tables is being made'}else p.title='The page asks once a second';
 p.className=cls;if(p.textContent!==text)p.textContent=text;document.body.classList.toggle('stale',failed!==null||old>1)}
function facts(r,got){const p=r.process,up=p?Date.now()/1000-p.start_unix_seconds:r.seconds;$('host').textContent=p?p.host:'sluice';
 $('facts').textContent=`sluice ${r.version} · up ${age(up)} · ${r.configuration} on ${r.device} × ${count(r.workers,'worker')} · generation ${r.generation}`;
 $('facts').title=`revision ${r.revision}`+(p?`\nCPU time ${age(p.cpu_seconds)}, resident memory ${size(p.resident_bytes)}, ${count(p.open_files,'open file')}`:'');
 document.title=(got.lost>0?'losing packets: ':'')+(p?p.host:'sluice')+(last?' '+pps(got.packets_in):'');
 const socket=p&&p.socket;document.querySelectorAll('button.cmd').forEach(b=>{b.hidden=!socket;if(!socket||b.dataset.said)return;const[verb,...rest]=b.dataset.cmd.split(' ');
  b.textContent=`sluice ${b.dataset.cmd}`;b.dataset.copy=`sluice ${verb} ${rest.join(' ')} --control ${socket}`;b.title=`Copy: ${b.dataset.copy}`})}
async function copy(b){const text=b.dataset.copy,said=b.textContent;try{await navigator.clipboard.writeText(text)}catch(e){const t=el('textarea',text);document.body.append(t);t.select();document.execCommand('copy');t.remove()}
 b.dataset.said='1';b.textContent='copied';setTimeout(()=>{b.textContent=said;delete b.dataset.said},1200)}
let looks=0,asking=false;
async function tick(){showStatus();if(paused||document.hidden||asking)return;asking=true;
 try{const[r,a]=await get('/api/v1/report?rules=12');r.at=performance.now();const now=r.at/1000;
  // Another process answers at this address: its counters begin anew.
  if(last&&(r.packets_in<last.packets_in||(r.process&&last.process&&r.process.start_unix_seconds!==last.process.start_unix_seconds)))last=null;
  const got=digest(r,now);r.dt=got.dt;facts(r,got);sums(r,got,now);ports(r,now);graph(r,now);tables(r,got);last=r;old=a;failed=null;answered=r.at;if(looks++%2===0)await traces()}
 catch(e){failed=e.name==='AbortError'?'no answer within 5 s':e.message}
 asking=false;showStatus()}
function theme(){const now=document.documentElement.dataset.theme||(matchMedia('(prefers-color-scheme:dark)').matches?'dark':'light');document.documentElement.dataset.theme=now==='dark'?'light':'dark'}
function pause(){paused=!paused;$('pause').textContent=paused?'resume':'pause';showStatus();if(!paused)tick()}
function idle(){showIdle=!showIdle;if(last)graph(last,last.at/1000)}
$('pause').onclick=pause;$('theme').onclick=theme;$('find').oninput=find;$('fold').onclick=idle;
document.querySelectorAll('button.cmd').forEach(b=>{b.hidden=true;b.onclick=()=>copy(b)});
addEventListener('resize',()=>{if(last)graph(last,last.at/1000)});
document.addEventListener('visibilitychange',tick);
addEventListener('keydown',k=>{if(k.target===$('find')){if(k.key==='Escape')$('find').blur();return}if(k.ctrlKey||k.metaKey||k.altKey)return;
 if(k.key===' '&&k.target.tagName!=='BUTTON'&&k.target.tagName!=='SUMMARY')pause();else if(k.key==='t')theme();else if(k.key==='i')idle();else if(k.key==='/')$('find').focus();else return;k.preventDefault()});
tick();setInterval(tick,1000);
</script></body></html>
)page";

}  // namespace sluice
