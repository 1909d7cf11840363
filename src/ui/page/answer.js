// What the server answers: a value, or why the source cannot say it.

import { element } from "./element.js";

async function fetched(path, fields = {}) {
  const query = new URLSearchParams(fields);
  const response = await fetch(`api/${path}?${query}`);
  if (!response.ok) throw new Error((await response.text()).trim() || response.statusText);
  return response.json();
}

/** What the page is about. */
export function about() {
  return fetched("about");
}

/** Fills an element with what is made of an answer, or with why there is none. */
export async function fill(place, path, fields, make) {
  let content;
  try {
    const answer = await fetched(path, fields);
    content = "known" in answer
      ? make(answer.known)
      : element("p", { class: "faint" }, `Not known: ${answer.unknown}.`);
  } catch (error) {
    content = element("p", { class: "state failing" }, `No answer: ${error.message}`);
  }
  const before = [...place.childNodes];
  const after = [content].flat();
  // What is the same stays, with the focus that it may have.
  const isSame = before.length === after.length && after.every((node, at) => node.isEqualNode(before[at]));
  if (!isSame) place.replaceChildren(...after);
}
