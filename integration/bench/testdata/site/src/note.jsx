import Markdown from "react-markdown";
import { useParams } from "react-router-dom";
import rehypeHighlight from "rehype-highlight";
import remarkGfm from "remark-gfm";
import { useNotes } from "./notes.js";

export function Note() {
  const { id } = useParams();
  const note = useNotes((state) => state.notes.find((each) => each.id === id));
  if (!note) return <p className="py-4">404</p>;
  return (
    <article className="py-4">
      <h1 className="text-2xl font-bold">{note.title}</h1>
      <Markdown remarkPlugins={[remarkGfm]} rehypePlugins={[rehypeHighlight]}>{note.text}</Markdown>
    </article>
  );
}
