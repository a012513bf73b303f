import ms from "ms";

Deno.serve(() => new Response(`two days are ${ms("2d")} ms in deno ${Deno.version.deno}`));
