import clsx from "clsx";
import NotebookPen from "lucide-react/dist/esm/icons/notebook-pen";
import Search from "lucide-react/dist/esm/icons/search";
import { useTranslation } from "react-i18next";
import { Link, Route, Routes } from "react-router-dom";
import { Editor } from "./editor.jsx";
import { List } from "./list.jsx";
import { Note } from "./note.jsx";

const edit = "edit 0";

export function App() {
  const { t } = useTranslation();
  return (
    <main className={clsx("mx-auto", "max-w-2xl", "p-6")} data-edit={edit}>
      <nav className="flex gap-4 border-b pb-2">
        <Link to="/"><Search /> {t("list")}</Link>
        <Link to="/new"><NotebookPen /> {t("new")}</Link>
      </nav>
      <Routes>
        <Route path="/" element={<List />} />
        <Route path="/new" element={<Editor />} />
        <Route path="/notes/:id" element={<Note />} />
      </Routes>
    </main>
  );
}
