// The script of the Worker: tools/bundle.mjs puts it into the bundle as text, start.ts starts it from there.
import { conversation } from "./answer.ts";

const ask = conversation((answer) => postMessage(answer));
onmessage = ({ data }) => ask(data);
